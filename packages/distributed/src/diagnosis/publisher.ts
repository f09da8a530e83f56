import type { StatusSlot } from '@tsrun/telemetry'
import { dtypes } from '../dtype.ts'
import { describeFingerprint, sameFingerprint, type Fingerprint } from '../operation.ts'
import { peersOf, type Task } from '../engine/task.ts'

const encoder = new TextEncoder()
/** Counts of one kind of operation whose texts are kept. */
const KEPT = 256

interface Known {
  readonly of: Fingerprint
  readonly text: Uint8Array
}

/** Publishes what the engine runs on the status page: plain stores, no system calls. */
export class Publisher {
  readonly #slot: StatusSlot
  /** Texts by kind and count: programs repeat themselves. */
  readonly #texts = new Map<number, Map<number, Known>>()
  #operation: Uint8Array | undefined
  #group = ''
  #ended = 0

  constructor(slot: StatusSlot) {
    this.#slot = slot
  }

  get abortedBy(): number | undefined {
    return this.#slot.abortedBy
  }

  onStart({ operation, fingerprint, group, posted }: Task, running: number): void {
    const slot = this.#slot
    const text = this.#textOf(fingerprint)
    if (text !== this.#operation) slot.setBytes('operation', text)
    this.#operation = text
    if (group.name !== this.#group) slot.setText('group', group.name)
    this.#group = group.name
    slot.set('sequence', operation.sequence)
    slot.set('bytes', Math.max(0, operation.count) * dtypes[operation.dtype].bytes)
    slot.set('running', running)
    slot.setState('operation', posted)
  }

  onSettled({ completed }: Task, running: number): void {
    this.#slot.set('running', running)
    this.#slot.set('ended', ++this.#ended)
    if (running === 0) this.#slot.setState('computing', completed)
  }

  /** While operations run: whom the oldest waits for. */
  look(running: Iterable<Task>): void {
    const [oldest] = running
    this.#slot.setText('waitsFor', oldest === undefined ? '' : peersOf(oldest).join(','))
  }

  #textOf(fingerprint: Fingerprint): Uint8Array {
    const { kind, count } = fingerprint
    let texts = this.#texts.get(kind)
    const known = texts?.get(count)
    if (known !== undefined && sameFingerprint(known.of, fingerprint)) return known.text
    if (texts === undefined || texts.size === KEPT)
      this.#texts.set(kind, (texts = new Map<number, Known>()))
    const text = encoder.encode(describeFingerprint(fingerprint))
    texts.set(count, { of: fingerprint, text })
    return text
  }
}
