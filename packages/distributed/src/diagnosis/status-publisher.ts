import { rankStates, type StatusSlot } from '../record/status-slot.ts'
import type { Task } from '../engine/task.ts'
import { bytesOf, describeFingerprint, sameFingerprint, type Fingerprint } from '../operation.ts'

/** This rank's slot on the status page of its launcher. */
export interface StatusPlace {
  /** The mapped page, or a copy of the page. */
  readonly buffer: SharedArrayBuffer
  readonly index: number
  /** The path to which the engine's thread copies the slot; undefined if the page is mapped. */
  readonly copyTo: string | undefined
}

const encoder = new TextEncoder()
const RUNNING = rankStates.indexOf('running')
/** Number of texts kept for each kind of operation. */
const KEPT = 256

interface Known {
  readonly of: Fingerprint
  readonly text: Uint8Array
}

interface Started extends Pick<Task, 'operation' | 'fingerprint' | 'posted'> {
  readonly group: { readonly name: string }
}

interface Settled extends Pick<Task, 'operation' | 'posted' | 'completed'> {
  /**
   * When the first message of the operation moved. 0 if none has moved; undefined if the operation
   * needs no messages.
   */
  readonly started: number | undefined
}

/**
 * Publishes on the status page what one thread of this rank runs. Uses plain stores and no system
 * calls.
 */
export function publishStatus(slot: StatusSlot, thread: 'engine' | 'caller') {
  const isEngine = thread === 'engine'
  /** The number of this thread. The slot's word `writer` names the thread that wrote the texts. */
  const writer = isEngine ? 1 : 2
  /** Texts by kind and count of operations. They are kept, because programs repeat their calls. */
  const known = new Map<number, Map<number, Known>>()
  let lastText: Uint8Array | undefined
  let lastGroup = ''

  const textOf = (fingerprint: Fingerprint): Uint8Array => {
    const { kind, count } = fingerprint
    let texts = known.get(kind)
    const last = texts?.get(count)
    if (last !== undefined && sameFingerprint(last.of, fingerprint)) return last.text
    if (texts === undefined || texts.size === KEPT)
      known.set(kind, (texts = new Map<number, Known>()))
    const text = encoder.encode(describeFingerprint(fingerprint))
    texts.set(count, { of: fingerprint, text })
    return text
  }

  return {
    abortedBy: () => slot.abortedBy,
    /** @param running - number of running operations of the engine; default: unchanged */
    onStart({ operation, fingerprint, group, posted }: Started, running?: number): void {
      const isMine = slot.get('writer') === writer
      if (!isMine) slot.set('writer', writer)
      const text = textOf(fingerprint)
      if (text !== lastText || !isMine) slot.setBytes('operation', text)
      lastText = text
      if (group.name !== lastGroup || !isMine) slot.setText('group', group.name)
      lastGroup = group.name
      slot.set('sequence', operation.sequence)
      slot.set('bytes', bytesOf(operation))
      if (running !== undefined) slot.set('running', running)
      if (slot.get('state') === RUNNING)
        slot.add('ownTime', Math.max(0, posted - slot.get('since')))
      slot.setState('operation', posted)
    },
    /** @param running - number of running operations of the engine; default: unchanged */
    onSettled({ operation, posted, started, completed }: Settled, running?: number): void {
      // Each thread adds to a separate sum, so that no update is lost.
      slot.add(isEngine ? 'engineTime' : 'callerTime', completed - posted)
      slot.add(isEngine ? 'engineBytes' : 'callerBytes', bytesOf(operation))
      // A failed operation may have moved no message.
      if (started !== undefined) {
        slot.add('waitTime', (started === 0 ? completed : started) - posted)
      }
      if (running !== undefined) slot.set('running', running)
      slot.add('ended', 1)
      if (slot.get('running') === 0) slot.setState('running', completed)
    },
    /** Publishes the ranks that the oldest operation waits for. */
    look(running: Iterable<Task>): void {
      const [oldest] = running
      slot.setText('waitsFor', oldest === undefined ? '' : oldest.peers().join(','))
    },
  }
}
