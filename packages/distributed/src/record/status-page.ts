import { closeSync, fstatSync, openSync, readSync, writeSync } from 'node:fs'
import { monotonicNow, openFile } from '@tsrun/core'
import { closeNative, createSharedFile } from '@tsrun/native'
import { describeFingerprint } from '../operation.ts'
import {
  STATUS_HEADER_BYTES,
  headerText,
  headerWord,
  LINK_NUMBERS,
  linkNumber,
  linksAt,
  rankEnds,
  rankStates,
  readText,
  STATUS_SLOT_BYTES,
  slotNumber,
  STATUS_MAGIC,
  STATUS_NAME,
  statusBytes,
  StatusSlot,
  type RankFate,
  type RankState,
} from './status-slot.ts'

/** The job to which a status page belongs. */
export interface StatusIdentity {
  readonly runId: string
  readonly script: string
  readonly worldSize: number
  readonly restartCount: number
  /** The number of ranks of this host. */
  readonly slots: number
  /**
   * The name of the launcher's abstract Unix socket for queries, and a secret. Undefined if the
   * launcher has no socket.
   */
  readonly socket: string | undefined
}

/** The status that one rank publishes. */
export interface RankStatus {
  readonly rank: number
  readonly pid: number
  readonly state: RankState
  /** How the process has ended; undefined while it runs. */
  readonly end: RankFate | undefined
  /** The current or last operation; undefined if there was none. */
  readonly operation: string | undefined
  readonly group: string | undefined
  readonly sequence: number
  readonly bytes: number
  /** When the current state began, by `monotonicNow()`. */
  readonly since: number
  readonly running: number
  readonly ended: number
  /** World ranks that the rank waits for. */
  readonly waitsFor: readonly number[]
  readonly step: number | undefined
  /** The step at which training ends. */
  readonly of?: number | undefined
  readonly loss: number | undefined
  /** The number of steps that the rank has reported. */
  readonly steps: number
  /** The total time of completed operations, from call to end, in milliseconds. */
  readonly operationTime: number
  /** The part of `operationTime` before the first message moved. */
  readonly waitTime: number
  /** The time outside of operations, in milliseconds. */
  readonly ownTime: number
  /** The total size of the buffers of completed operations, in bytes. */
  readonly operationBytes: number
  /** The traffic with each world rank. */
  readonly links: readonly LinkBytes[]
}

/**
 * The traffic of a link in bytes: payloads and headers, including payloads copied from shared
 * memory. Collectives on shared memory may need no messages and are then not counted.
 */
export interface LinkBytes {
  readonly sent: number
  readonly received: number
}

/** The contents of a status page. */
export interface StatusSnapshot extends StatusIdentity {
  readonly launcherPid: number
  /** The rank whose end stops the job. */
  readonly abortedBy: number | undefined
  readonly ranks: readonly RankStatus[]
}

/**
 * The status page of this host, on the launcher's side. The file has no name, so it disappears
 * when all processes have ended, even after a crash.
 */
export class StatusPage {
  /** The path for ranks and `tsrun ps`, valid as long as this process runs. */
  readonly path: string
  /** The descriptor of the path, from libc. */
  readonly #shared: number
  readonly #fd: number

  /** @throws Error if no page can be made */
  constructor(identity: StatusIdentity) {
    if (process.platform !== 'linux') throw new Error(`there is no /proc on ${process.platform}`)
    this.#shared = createSharedFile(STATUS_NAME, statusBytes(identity))
    this.path = `/proc/${process.pid}/fd/${this.#shared}`
    this.#fd = openSync(this.path, 'r+')
    const header = Buffer.alloc(STATUS_HEADER_BYTES)
    const put = (name: keyof typeof headerWord, value: number): unknown =>
      header.writeInt32LE(value, headerWord[name] * 4)
    put('magic', STATUS_MAGIC)
    put('slots', identity.slots)
    put('launcherPid', process.pid)
    put('worldSize', identity.worldSize)
    put('restartCount', identity.restartCount)
    for (const name of ['runId', 'script', 'socket'] as const) {
      const { at, bytes: room } = headerText[name]
      const written = header.write(identity[name] ?? '', at + 4, room - 4)
      header.writeInt32LE(written, at)
    }
    writeSync(this.#fd, header, 0, header.length, 0)
  }

  /** Tells the engines of all ranks of the host that the job stops because a rank has ended. */
  abort(rank: number): void {
    const word = Buffer.alloc(4)
    word.writeInt32LE(rank + 1)
    writeSync(this.#fd, word, 0, 4, headerWord.abort * 4)
  }

  /** Marks the rank of a slot as ended, even if the rank never joined. */
  end(index: number, { rank, pid }: Pick<RankStatus, 'rank' | 'pid'>, end: RankFate): void {
    const word = Buffer.alloc(8)
    const placeOf = (name: keyof typeof slotNumber): number =>
      STATUS_HEADER_BYTES + index * STATUS_SLOT_BYTES + slotNumber[name] * 8
    const put = (name: keyof typeof slotNumber, value: number): void => {
      word.writeDoubleLE(value)
      writeSync(this.#fd, word, 0, 8, placeOf(name))
    }
    put('end', rankEnds.indexOf(end))
    readSync(this.#fd, word, 0, 8, placeOf('pid'))
    if (word.readDoubleLE() !== 0) return
    put('step', NaN)
    put('loss', NaN)
    put('since', monotonicNow())
    put('rank', rank)
    put('pid', pid)
  }

  read(): StatusSnapshot {
    return readDescriptor(this.#fd)
  }

  close(): void {
    closeSync(this.#fd)
    closeNative(this.#shared)
  }
}

/**
 * Reads the status page of this or another launcher.
 * @throws Error when the file is not a status page
 */
export function readStatusPage(path: string): StatusSnapshot {
  const fd = openFile(path)
  try {
    return readDescriptor(fd)
  } finally {
    closeSync(fd)
  }
}

/** Reads the header of a status page. @throws Error when the file is not a whole status page */
export function readHeader(fd: number) {
  const header = Buffer.alloc(STATUS_HEADER_BYTES)
  readSync(fd, header, 0, header.length, 0)
  const word = (name: keyof typeof headerWord): number => header.readInt32LE(headerWord[name] * 4)
  const text = (name: keyof typeof headerText): string | undefined =>
    readText(header, 0, headerText[name])
  const [slots, worldSize] = [word('slots'), word('worldSize')]
  const isSize = (number: number): boolean => number >= 0 && number <= 65536
  if (word('magic') !== STATUS_MAGIC || !isSize(slots) || !isSize(worldSize)) {
    throw new Error('this is not a status page')
  }
  const size = linksAt({ slots, worldSize }, slots)
  if (size > fstatSync(fd).size) throw new Error('this is not a whole status page')
  return { word, text, slots, worldSize, size }
}

function readDescriptor(fd: number): StatusSnapshot {
  const { word, text, slots, worldSize, size } = readHeader(fd)
  const bytes = new Uint8Array(size)
  readSync(fd, bytes, 0, size, 0)
  const ranks = Array.from({ length: slots }, (_, index) =>
    readSlot(new StatusSlot(bytes.buffer, index), worldSize),
  )
  return {
    runId: text('runId') ?? '',
    script: text('script') ?? '',
    socket: text('socket'),
    worldSize,
    restartCount: word('restartCount'),
    slots,
    launcherPid: word('launcherPid'),
    abortedBy: word('abort') === 0 ? undefined : word('abort') - 1,
    ranks: ranks.filter(({ pid }) => pid !== 0),
  }
}

function readSlot(slot: StatusSlot, worldSize: number): RankStatus {
  const of = (name: keyof typeof slotNumber): number => slot.numbers[slotNumber[name]]!
  const ranks = slot.text('waitsFor')
  const [kind, root, count] = [of('kind'), of('root'), of('count')]
  const [state, since] = [rankStates[of('state')] ?? 'starting', of('since')]
  const known = (value: number): number | undefined => (Number.isNaN(value) ? undefined : value)
  return {
    rank: of('rank'),
    pid: of('pid'),
    state,
    end: rankEnds[of('end')],
    operation: kind === 0 ? undefined : describeFingerprint({ kind, root, count }),
    group: slot.text('group'),
    sequence: of('sequence'),
    bytes: of('bytes'),
    since,
    running: of('running'),
    ended: of('ended'),
    waitsFor: ranks === undefined ? [] : ranks.split(',').map(Number).filter(Number.isInteger),
    step: known(of('step')),
    of: of('of') || undefined,
    loss: known(of('loss')),
    steps: of('steps'),
    operationTime: of('engineTime') + of('callerTime'),
    operationBytes: of('engineBytes') + of('callerBytes'),
    waitTime: of('waitTime'),
    ownTime: of('ownTime') + (state === 'running' ? monotonicNow() - since : 0),
    // Read links only on access, because there are many links and few readers want them.
    get links() {
      const numbers = slot.links(worldSize)!
      return Array.from({ length: worldSize }, (_, rank) => ({
        sent: numbers[rank * LINK_NUMBERS + linkNumber.bytesSent]!,
        received: numbers[rank * LINK_NUMBERS + linkNumber.bytesReceived]!,
      }))
    },
  }
}

/**
 * The activity of a rank, as the dashboard and all commands show it. Outside of operations, a rank is
 * `computing` or `idle` according to its measured CPU time. If the CPU time is between the two or
 * is unknown, the rank is `running`.
 */
export type RankActivity =
  | 'starting'
  | 'running'
  | 'computing'
  | 'idle'
  | 'communicating'
  | 'waiting'
  | 'left'
  | 'ended'
  | 'died'

/**
 * Returns the activity of a rank.
 * @param computing - the fraction of its time outside of operations in which it computed, if known
 */
export function activityOf(
  { state, end, waitsFor }: Pick<RankStatus, 'state' | 'end' | 'waitsFor'>,
  computing?: number,
): RankActivity {
  if (end !== undefined) return end
  if (state === 'operation') return waitsFor.length > 0 ? 'waiting' : 'communicating'
  if (state !== 'running' || computing === undefined) return state
  if (computing >= 0.5) return 'computing'
  return computing < 0.2 ? 'idle' : 'running'
}
