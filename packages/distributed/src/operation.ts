import { dtypeByCode, dtypes, type DType } from './dtype.ts'
import { reductionCodes, type ReduceOp } from './reduction.ts'

/** Wire codes of the operations. Frames contain them, so they never change. */
export const operationCodes = {
  send: 1,
  recv: 2,
  broadcast: 3,
  reduce: 4,
  allReduce: 5,
  reduceScatter: 6,
  allGather: 7,
  barrier: 8,
  gather: 9,
  scatter: 10,
  allToAll: 11,
  allGatherV: 12,
  allToAllV: 15,
  allReduceCoalesced: 16,
  monitoredBarrier: 17,
} as const

/** The name of an operation, such as `allReduce` or `send`. */
export type OperationName = keyof typeof operationCodes

export const algorithmNames = [
  'auto',
  'ring',
  'recursive-doubling',
  'binomial-tree',
  'chain',
  'dissemination',
  'direct',
  'halving-doubling',
  'recursive-halving',
  'bruck',
  'pairwise',
  'linear',
  'hierarchical',
  /** libmpi chooses the algorithm. */
  'mpi',
  'flat',
  'window',
] as const
/** The name of an algorithm of collectives. `docs/algorithms` describes each. */
export type AlgorithmName = (typeof algorithmNames)[number]

/** The count of a receive that discards its message, whatever its size. */
export const SKIPPED = -1

/** The count of an uneven collective. Each of its messages has its own count. */
const EACH_ITS_OWN = Number.MAX_SAFE_INTEGER

/** The value of `peer` for a receive from any other rank. */
export const ANY_SOURCE = -1

function setOf(...names: OperationName[]): ReadonlySet<string> {
  return new Set<string>(names)
}

const rooted = setOf('broadcast', 'reduce', 'gather', 'scatter')
/** Operations that combine the elements of several ranks. */
export const reducing = setOf('reduce', 'allReduce', 'reduceScatter', 'allReduceCoalesced')
/** Operations whose `count` is the size of one rank's slice. */
export const sliced = setOf('reduceScatter', 'allGather', 'gather', 'scatter', 'allToAll')
/** Operations that complete on a rank only after all ranks have started them. */
export const joint = setOf(
  'allReduce',
  'allReduceCoalesced',
  'reduceScatter',
  'allGather',
  'allGatherV',
  'allToAll',
  'allToAllV',
  'barrier',
  'monitoredBarrier',
)
const uneven = setOf('allGatherV', 'allToAllV')
const empty = setOf('barrier', 'monitoredBarrier')

export const LARGEST_GROUP = 2 ** 18 - 1

/** One call of a collective or a message, for the engine. Offsets are bytes in the heap. */
export interface Operation {
  readonly name: OperationName
  /** Id of the group. */
  readonly group: number
  /** Position among the group's collectives. For a message: position among the group's messages. */
  readonly sequence: number
  readonly dtype: DType
  readonly reduction: ReduceOp
  /** Whether to combine the elements in rank order. */
  readonly deterministic: boolean
  readonly algorithm: AlgorithmName
  /** Heap offset of the input, or of the buffer if the operation is in place. */
  readonly input: number
  /** Heap offset of the output; equal to `input` if the operation is in place. */
  readonly output: number
  /**
   * Number of elements, the same on all ranks: of the whole buffer, or of one rank's slice if the
   * buffers have slices. 0 if the slices have different lengths. SKIPPED if a receive discards its
   * message.
   */
  readonly count: number
  /**
   * The root, or the peer of a message (group rank or ANY_SOURCE). For allReduceCoalesced, a digest
   * of the lengths; otherwise 0.
   */
  readonly peer: number
  /**
   * Offset in the heap of a table of doubles, or 0. For allGatherV, it holds the elements of each
   * rank's slice; for allToAllV, those of each sent slice, then those of each received slice. A
   * receive stores the rank of its source in the table.
   */
  readonly table: number
  readonly tag: number
  /** Time-out in milliseconds. */
  readonly timeout: number
  /** Whether the caller's signal was aborted before the start. */
  readonly aborted: boolean
  /**
   * Whether the position was reserved. Ranks may then start the operation in different orders
   * relative to later collectives.
   */
  readonly isReserved: boolean
  /**
   * Number among all operations of this rank, from 1, which identifies the entry of the flight
   * recorder.
   */
  readonly flight: number
  /**
   * How far the calling thread has run an operation on shared memory: 0 before the start, 1 once
   * its buffer is published. Each later step adds 1.
   */
  readonly begun: number
}

/** Returns the size in bytes of `count` elements, or 0 if it is unknown before the end. */
export function bytesOf({ count, dtype }: Pick<Operation, 'count' | 'dtype'>): number {
  return Math.max(0, count) * dtypes[dtype].bytes
}

/**
 * Whether libmpi runs an operation. Such an operation cannot be cancelled, and the peers that it
 * waits for are unknown.
 */
export function isNative({ algorithm }: Operation): boolean {
  return algorithm === 'mpi'
}

/** Whether an operation needs no messages of the engine. */
export function isWithoutMessages({ algorithm }: Operation): boolean {
  return algorithm === 'mpi' || algorithm === 'flat' || algorithm === 'window'
}

/** Whether all ranks of the group take part in the operation. */
export function isCollective({ name }: Operation): boolean {
  return name !== 'send' && name !== 'recv'
}

/** The facts that both sides of a message must agree on, as three words of the frame header. */
export interface Fingerprint {
  /** The codes `operation | dtype << 8 | reduction << 16 | algorithm << 24`. */
  readonly kind: number
  /** The root rank. For allReduceCoalesced, a digest of the lengths; otherwise 0. */
  readonly root: number
  /**
   * Number of elements. In messages of uneven collectives: number of elements of the sent slice.
   */
  readonly count: number
}

/** Returns the fingerprint of an operation. A receive has the same fingerprint as its send. */
export function fingerprintOf(operation: Operation): Fingerprint {
  const { name, dtype, reduction, algorithm, peer, count } = operation
  if (!isCollective(operation)) {
    return { kind: operationCodes.send | (dtypes[dtype].code << 8), root: 0, count }
  }
  const kind =
    operationCodes[name] |
    (empty.has(name) ? 0 : dtypes[dtype].code << 8) |
    (reducing.has(name) ? reductionCodes[reduction] << 16 : 0) |
    (algorithmNames.indexOf(algorithm) << 24)
  const root = rooted.has(name) || name === 'allReduceCoalesced' ? peer : 0
  return { kind, root, count: uneven.has(name) ? EACH_ITS_OWN : count }
}

/** Whether a message belongs to a call. The messages of uneven collectives have individual counts. */
export function belongsTo(message: Fingerprint, call: Fingerprint): boolean {
  const { kind, root, count } = message
  const isUneven = uneven.has(keyOf(operationCodes, kind & 255) ?? '')
  return kind === call.kind && root === call.root && (isUneven || count === call.count)
}

export function sameFingerprint(a: Fingerprint, b: Fingerprint): boolean {
  return a.kind === b.kind && a.root === b.root && a.count === b.count
}

/** Digests the lengths of coalesced buffers into one word: their number and a hash (FNV-1a). */
export function digestOf(lengths: readonly number[]): number {
  let hash = 2166136261
  for (const length of lengths) {
    for (let rest = length; rest > 0; rest = Math.floor(rest / 256)) {
      hash = Math.imul(hash ^ (rest & 255), 16777619)
    }
    hash = Math.imul(hash ^ 256, 16777619)
  }
  return ((Math.min(lengths.length, 4095) << 20) | ((hash ^ (hash >>> 12)) & 0xfffff)) >>> 0
}

/** Returns the name of the operation, which is `send` for both a send and a receive. */
export function nameOfFingerprint({ kind }: Fingerprint): string {
  return keyOf(operationCodes, kind & 255) ?? `operation ${kind & 255}`
}

/** Formats a fingerprint for error messages, for example `allReduce(sum) float32[4096] by ring`. */
export function describeFingerprint(fingerprint: Fingerprint): string {
  const { kind, root, count } = fingerprint
  const name = nameOfFingerprint(fingerprint)
  const reduction = keyOf(reductionCodes, (kind >> 16) & 255)
  const dtype = dtypeByCode((kind >> 8) & 255)
  const algorithm = algorithmNames[(kind >> 24) & 255]
  const words = [reduction, rooted.has(name) ? `root ${root}` : undefined]
  const given = words.filter((word) => word !== undefined).join(', ')
  const argument = given === '' ? '' : `(${given})`
  const slice = uneven.has(name) ? ' with a slice of' : ''
  const buffer =
    dtype === undefined
      ? ''
      : count === EACH_ITS_OWN
        ? ` of ${dtype}`
        : `${slice} ${dtype}[${count}]`
  const parts =
    name === 'allReduceCoalesced'
      ? ` in ${root >>> 20} buffers (lengths #${(root & 0xfffff).toString(16)})`
      : ''
  const by = algorithm === undefined || algorithm === 'auto' ? '' : ` by ${algorithm}`
  return `${name === 'send' ? 'send/recv' : name}${argument}${buffer}${parts}${by}`
}

function keyOf(table: Readonly<Record<string, number>>, code: number): string | undefined {
  return Object.keys(table).find((key) => table[key] === code)
}
