import { dtypeByCode, type DType } from '../dtype.ts'
import type { ReduceOp } from '../process-group.ts'

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
} as const

export type OperationName = keyof typeof operationCodes

export const reductionCodes = {
  sum: 1,
  avg: 2,
  product: 3,
  min: 4,
  max: 5,
} as const satisfies Record<ReduceOp, number>

export const algorithmNames = [
  'auto',
  'ring',
  'recursive-doubling',
  'binomial-tree',
  'chain',
  'dissemination',
  'direct',
  'halving-doubling',
] as const
export type AlgorithmName = (typeof algorithmNames)[number]

/** The count of a receive that throws its message away. */
export const SKIPPED = -1

/** One call of a collective or a message, as the engine takes it. Offsets are bytes in the heap. */
export interface Operation {
  readonly name: OperationName
  /** Group id; see `EngineGroup`. */
  readonly group: number
  /** Position among the group's collectives; for messages, among its messages. */
  readonly sequence: number
  readonly dtype: DType
  readonly reduction: ReduceOp
  readonly algorithm: AlgorithmName
  /** In-place buffer, or the input. */
  readonly input: number
  /** Output where it is another buffer, else the same as `input`. */
  readonly output: number
  /**
   * Elements of the fingerprint: of the whole buffer, of the slice for reduceScatter/allGather.
   * A receive of SKIPPED throws its message away, whatever it is.
   */
  readonly count: number
  /** Root, or the peer of a message (group rank); 0 where there is none. */
  readonly peer: number
  readonly tag: number
  /** Milliseconds. */
  readonly timeout: number
  /** Its signal was aborted before it began. */
  readonly aborted: boolean
}

export function isCollective({ name }: Operation): boolean {
  return name !== 'send' && name !== 'recv'
}

/** What both sides of a message must agree on, as three words of the frame header. */
export interface Fingerprint {
  /** operation | dtype << 8 | reduction << 16 | algorithm << 24. */
  readonly kind: number
  /** Root rank, 0 where there is none. */
  readonly root: number
  readonly count: number
}

/** Messages look alike from both ends: a receive has the fingerprint of its send. */
export function fingerprintOf(operation: Operation, dtypeCode: number): Fingerprint {
  const { name, reduction, algorithm, peer, count } = operation
  const isMessage = !isCollective(operation)
  const reduces = name === 'reduce' || name === 'allReduce' || name === 'reduceScatter'
  const kind =
    operationCodes[isMessage ? 'send' : name] |
    (name === 'barrier' ? 0 : dtypeCode << 8) |
    (reduces ? reductionCodes[reduction] << 16 : 0) |
    (isMessage ? 0 : algorithmNames.indexOf(algorithm) << 24)
  const root = name === 'broadcast' || name === 'reduce' ? peer : 0
  return { kind, root, count }
}

export function sameFingerprint(a: Fingerprint, b: Fingerprint): boolean {
  return a.kind === b.kind && a.root === b.root && a.count === b.count
}

/** For people: `allReduce(sum) float32[4096] by ring`. */
export function describeFingerprint({ kind, root, count }: Fingerprint): string {
  const name = keyOf(operationCodes, kind & 255) ?? `operation ${kind & 255}`
  const reduction = keyOf(reductionCodes, (kind >> 16) & 255)
  const dtype = dtypeByCode((kind >> 8) & 255)
  const algorithm = algorithmNames[(kind >> 24) & 255]
  const buffer = dtype === undefined ? '' : ` ${dtype}[${count}]`
  const argument =
    name === 'broadcast' || name === 'reduce'
      ? `(${reduction === undefined ? '' : `${reduction}, `}root ${root})`
      : reduction === undefined
        ? ''
        : `(${reduction})`
  const by = algorithm === undefined || algorithm === 'auto' ? '' : ` by ${algorithm}`
  return `${name === 'send' ? 'send/recv' : name}${argument}${buffer}${by}`
}

function keyOf(table: Readonly<Record<string, number>>, code: number): string | undefined {
  return Object.keys(table).find((key) => table[key] === code)
}
