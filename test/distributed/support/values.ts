import {
  premulSum,
  type AnyTypedArray,
  type DType,
  type ProcessGroup,
  type ReduceOp,
  type TypedArrayOf,
} from '@tsrun/distributed'
import { combine, encode, quotient, scaled, type Element } from './arithmetic.ts'

export const dtypes: readonly DType[] = [
  ...(['float32', 'float64', 'float16', 'bfloat16', 'bool'] as const),
  ...(['int8', 'uint8', 'int32', 'uint32', 'int64', 'uint64'] as const),
]

const ofFloats: readonly ReduceOp[] = ['sum', 'avg', 'product', 'min', 'max', premulSum(0.5)]
const ofBooleans: readonly ReduceOp[] = ['sum', 'product', 'min', 'max', 'band', 'bor', 'bxor']
const ofIntegers: readonly ReduceOp[] = [...ofBooleans, 'avg']

/** The reductions of a dtype. */
export function reductionsOf(dtype: DType): readonly ReduceOp[] {
  if (dtype === 'bool') return ofBooleans
  return dtype.includes('float') ? ofFloats : ofIntegers
}

const types = {
  float32: Float32Array,
  float64: Float64Array,
  float16: Uint16Array,
  bfloat16: Uint16Array,
  int8: Int8Array,
  uint8: Uint8Array,
  int32: Int32Array,
  uint32: Uint32Array,
  int64: BigInt64Array,
  uint64: BigUint64Array,
  bool: Uint8Array,
}

/** What all typed arrays have in common, with elements of any kind. */
interface Elements {
  readonly length: number
  [i: number]: Element
  copyWithin(target: number, start: number, end: number): unknown
}

export function newArray<D extends DType>(dtype: D, length: number): TypedArrayOf[D] {
  return new types[dtype](length) as TypedArrayOf[D]
}

/** Of the values: 5 of floats, 61 of the others. */
const PERIOD = 5 * 61

/**
 * What rank `rank` puts in, again and again after PERIOD elements. Floats are small integers, so
 * that every order of adding or multiplying gives the same bits; integers fill their whole range,
 * so that sums wrap around.
 */
export function valueOf(dtype: DType, rank: number, i: number): Element {
  const ofRanks = values.get(dtype) ?? []
  values.set(dtype, ofRanks)
  const known = (ofRanks[rank] ??= Array.from({ length: PERIOD }, (_, at) =>
    computeValue(dtype, rank, at),
  ))
  return known[i % PERIOD]!
}

/** What is computed already: by dtype and rank. */
const values = new Map<DType, Element[][]>()

function computeValue(dtype: DType, rank: number, i: number): Element {
  if (dtype.includes('float')) return encode(dtype, ((i * 7 + rank * 3) % 5) - 2)
  const word = Math.imul((i % 61) + 1, 0x9e3779b1) ^ Math.imul(rank + 1, 0x85ebca6b)
  if (dtype === 'bool') return (word >>> 9) & 1
  if (!dtype.endsWith('64')) return encode(dtype, word)
  return encode(dtype, BigInt(word) * 0x1_0000_0001n + BigInt(rank * (i % 61)))
}

export function fill<T extends AnyTypedArray>(buffer: T, dtype: DType, rank: number): T {
  return fillPeriodically(buffer, (i) => valueOf(dtype, rank, i))
}

function fillPeriodically<T extends AnyTypedArray>(buffer: T, valueAt: (i: number) => Element): T {
  const elements = buffer as unknown as Elements
  for (let i = 0; i < Math.min(PERIOD, elements.length); i++) elements[i] = valueAt(i)
  for (let done = PERIOD; done < elements.length; done *= 2) {
    elements.copyWithin(done, 0, elements.length - done)
  }
  return buffer
}

function fillWith<T extends AnyTypedArray>(buffer: T, valueAt: (i: number) => Element): T {
  const elements = buffer as unknown as Elements
  for (let i = 0; i < elements.length; i++) elements[i] = valueAt(i)
  return buffer
}

const references = new Map<string, TypedArrayOf[DType]>()

/** The reduction of the values of `size` ranks, in plain arithmetic. */
export function reduced<D extends DType>(
  dtype: D,
  op: ReduceOp,
  size: number,
  length: number,
): TypedArrayOf[D] {
  const key = [dtype, JSON.stringify(op), size, length].join(' ')
  const known = references.get(key)
  if (known !== undefined) return known as TypedArrayOf[D]
  const inputOf = (rank: number, i: number): Element => {
    const value = valueOf(dtype, rank, i)
    return typeof op === 'object' ? scaled(dtype, value, op.premulSum) : value
  }
  const result = fillPeriodically(newArray(dtype, length), (i) => {
    let sum = inputOf(0, i)
    for (let rank = 1; rank < size; rank++) sum = combine(dtype, op, sum, inputOf(rank, i))
    return op === 'avg' ? quotient(dtype, sum, size) : sum
  })
  references.set(key, result)
  return result
}

/** The four places where a caller may have a buffer. */
export const placements = ['arena', 'heap', 'part of the arena', 'part of the heap'] as const
export type Placement = (typeof placements)[number]

/** A buffer of `length` elements with guards around it, and the check that they are untouched. */
export function placed<D extends DType>(
  group: ProcessGroup,
  placement: Placement,
  dtype: D,
  length: number,
): { buffer: TypedArrayOf[D]; release: () => void } {
  const isPart = placement.startsWith('part')
  const guard = isPart ? 3 : 0
  const whole = placement.endsWith('arena')
    ? group.alloc(dtype, length + 2 * guard)
    : newArray(dtype, length + 2 * guard)
  const mark = encode(dtype, 77)
  fillWith(whole, () => mark)
  const buffer = whole.subarray(guard, guard + length) as TypedArrayOf[D]
  return {
    buffer,
    release: () => {
      const around: Element[] = [...whole.subarray(0, guard), ...whole.subarray(guard + length)]
      if (around.some((value) => value !== mark)) throw new Error('wrote beside the buffer')
      if (placement.endsWith('arena')) group.free(whole)
    },
  }
}

/** The same bits: unlike `toEqual`, fast on long arrays and strict about the sign of zero. */
export function sameBits(a: AnyTypedArray, b: AnyTypedArray): boolean {
  return Buffer.compare(bytesOf(a), bytesOf(b)) === 0
}

function bytesOf({ buffer, byteOffset, byteLength }: AnyTypedArray): Buffer {
  return Buffer.from(buffer as ArrayBuffer, byteOffset, byteLength)
}

/** An array of `length` elements from a function of the position. */
export function arrayOf<D extends DType>(
  dtype: D,
  length: number,
  valueAt: (i: number) => Element,
): TypedArrayOf[D] {
  return fillWith(newArray(dtype, length), valueAt)
}
