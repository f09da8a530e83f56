import { dtypeByCode, type DType } from './dtype.ts'
import { reductionCodes, type Reduction } from './reduction.ts'

/** Wire codes of the operations. They never change: they are in frames. */
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
  gatherV: 13,
  scatterV: 14,
  allToAllV: 15,
  allReduceCoalesced: 16,
  monitoredBarrier: 17,
} as const

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
  'ordered',
  'hierarchical',
  /** Not ours: libmpi's. */
  'mpi',
  'flat',
  'window',
] as const
export type AlgorithmName = (typeof algorithmNames)[number]

/** The count of a receive that throws its message away. */
export const SKIPPED = -1

/** The count of an uneven collective: each of its messages has its own. */
const EACH_ITS_OWN = Number.MAX_SAFE_INTEGER

/** The peer of a receive that takes a message of any other rank. */
export const ANY_SOURCE = -1

export const rooted: ReadonlySet<string> = new Set<OperationName>([
  'broadcast',
  'reduce',
  'gather',
  'scatter',
  'gatherV',
  'scatterV',
])
export const reducing: ReadonlySet<string> = new Set<OperationName>([
  'reduce',
  'allReduce',
  'reduceScatter',
  'allReduceCoalesced',
])
/** Those whose `count` is one rank's slice. */
export const sliced: ReadonlySet<OperationName> = new Set<OperationName>([
  'reduceScatter',
  'allGather',
  'gather',
  'scatter',
  'allToAll',
])
/** Those that end on no rank before all ranks have begun them. */
export const joint: ReadonlySet<OperationName> = new Set<OperationName>([
  'allReduce',
  'allReduceCoalesced',
  'reduceScatter',
  'allGather',
  'allGatherV',
  'allToAll',
  'allToAllV',
  'barrier',
  'monitoredBarrier',
])
const uneven: ReadonlySet<string> = new Set<OperationName>([
  'allGatherV',
  'gatherV',
  'scatterV',
  'allToAllV',
])
const empty: ReadonlySet<string> = new Set<OperationName>(['barrier', 'monitoredBarrier'])

/** Groups are numbered up to here. */
export const LARGEST_GROUP = 2 ** 18 - 1

/** One call of a collective or a message, as the engine takes it. Offsets are bytes in the heap. */
export interface Operation {
  readonly name: OperationName
  /** Group id; see `EngineGroup`. */
  readonly group: number
  /** Position among the group's collectives; for messages, among its messages. */
  readonly sequence: number
  readonly dtype: DType
  readonly reduction: Reduction
  /** What `premulSum` multiplies the input by. */
  readonly factor: number
  /** The elements of the ranks must be combined in the order of the ranks. */
  readonly deterministic: boolean
  readonly algorithm: AlgorithmName
  /** In-place buffer, or the input. */
  readonly input: number
  /** Output where it is another buffer, else the same as `input`. */
  readonly output: number
  /**
   * Elements of the fingerprint: of the whole buffer, of one rank's slice where the buffers have
   * slices, 0 where these are uneven. A receive of SKIPPED throws its message away, whatever it is.
   */
  readonly count: number
  /**
   * Root, or the peer of a message (group rank, or ANY_SOURCE); for allReduceCoalesced a digest of
   * the lengths, for monitoredBarrier 1 when it waits for all ranks; else 0.
   */
  readonly peer: number
  /**
   * Offset in the heap of a table of doubles, 0 where there is none. Elements of each rank's slice
   * for allGatherV, gatherV and scatterV (only its own is known to a rank that is not the root), of
   * each slice that is sent and then of each that comes for allToAllV. A receive writes the rank of
   * its source there.
   */
  readonly table: number
  readonly tag: number
  /** Milliseconds. */
  readonly timeout: number
  /** Its signal was aborted before it began. */
  readonly aborted: boolean
  /** Its position was reserved: ranks may start it before or after collectives that follow. */
  readonly isReserved: boolean
  /** Position among all operations of this rank, from 1; see `Journal`. */
  readonly flight: number
  /**
   * How far the caller's thread has come with it, for what runs in an epoch: 0 when it has not begun,
   * 1 when its buffer is published, and 1 more for each time that its steps were continued.
   */
  readonly begun: number
}

/** Whether a library behind the transport runs it: it cannot be cancelled, nor asked whom it waits for. */
export function isNative({ algorithm }: Operation): boolean {
  return algorithm === 'mpi'
}

/** Whether it exchanges no messages of the engine's. */
export function isWithoutMessages({ algorithm }: Operation): boolean {
  return algorithm === 'mpi' || algorithm === 'flat' || algorithm === 'window'
}

export function isCollective({ name }: Operation): boolean {
  return name !== 'send' && name !== 'recv'
}

/** What both sides of a message must agree on, as three words of the frame header. */
export interface Fingerprint {
  /** operation | dtype << 8 | reduction << 16 | algorithm << 24. */
  readonly kind: number
  /**
   * Root rank; for allReduceCoalesced a digest of the lengths; for other sums by `premulSum` the
   * factor as bits of float32; else 0.
   */
  readonly root: number
  /** Elements; in messages of uneven collectives, those of the slice that is on its way. */
  readonly count: number
}

/** Messages look alike from both ends: a receive has the fingerprint of its send. */
export function fingerprintOf(operation: Operation, dtypeCode: number): Fingerprint {
  const { name, reduction, algorithm, peer, count } = operation
  const isMessage = !isCollective(operation)
  const kind =
    operationCodes[isMessage ? 'send' : name] |
    (empty.has(name) ? 0 : dtypeCode << 8) |
    (reducing.has(name) ? reductionCodes[reduction] << 16 : 0) |
    (isMessage ? 0 : algorithmNames.indexOf(algorithm) << 24)
  const root = rooted.has(name) || name === 'allReduceCoalesced' ? peer : factorWord(operation)
  return { kind, root, count: uneven.has(name) ? EACH_ITS_OWN : count }
}

/** A message of a collective and the call of it: uneven ones have another count in each message. */
export function belongsTo(message: Fingerprint, call: Fingerprint): boolean {
  const { kind, root, count } = message
  const isUneven = uneven.has(keyOf(operationCodes, kind & 255) ?? '')
  return kind === call.kind && root === call.root && (isUneven || count === call.count)
}

export function sameFingerprint(a: Fingerprint, b: Fingerprint): boolean {
  return a.kind === b.kind && a.root === b.root && a.count === b.count
}

/** The lengths of coalesced buffers as one word: their number and a hash (FNV-1a). */
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

/** The operation's name; that of both ends of a message is `send`. */
export function nameOfFingerprint({ kind }: Fingerprint): string {
  return keyOf(operationCodes, kind & 255) ?? `operation ${kind & 255}`
}

/** For people: `allReduce(sum) float32[4096] by ring`. */
export function describeFingerprint(fingerprint: Fingerprint): string {
  const { kind, root, count } = fingerprint
  const name = nameOfFingerprint(fingerprint)
  const reduction = keyOf(reductionCodes, (kind >> 16) & 255)
  const dtype = dtypeByCode((kind >> 8) & 255)
  const algorithm = algorithmNames[(kind >> 24) & 255]
  const hasFactor = reduction === 'premulSum' && hasFactorWord(name)
  const reduced = hasFactor ? `premulSum of ${floatOf(root)}` : reduction
  const words = [reduced, rooted.has(name) ? `root ${root}` : undefined]
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

const float = new Float32Array(1)
const word = new Uint32Array(float.buffer)

/** The word for roots and digests is free in these. */
function hasFactorWord(name: string): boolean {
  return name === 'allReduce' || name === 'reduceScatter'
}

function factorWord({ name, reduction, factor }: Operation): number {
  if (reduction !== 'premulSum' || !hasFactorWord(name)) return 0
  float[0] = factor
  return word[0]!
}

function floatOf(bits: number): number {
  word[0] = bits
  return float[0]!
}

function keyOf(table: Readonly<Record<string, number>>, code: number): string | undefined {
  return Object.keys(table).find((key) => table[key] === code)
}
