import {
  type AnyTypedArray,
  type DType,
  type ProcessGroup,
  type ReduceOp,
  type TypedArrayOf,
} from '@tsrun/distributed'
import { combine, encode, scaled, type Element } from './arithmetic.ts'

export const dtypes: readonly DType[] = [
  ...(['float32', 'float64', 'float16', 'bfloat16', 'bool'] as const),
  ...(['int8', 'uint8', 'int32', 'uint32', 'int64', 'uint64'] as const),
]

const ofFloats: readonly ReduceOp[] = ['sum', 'avg', 'product', 'min', 'max']
const ofWhole: readonly ReduceOp[] = ['sum', 'product', 'min', 'max', 'band', 'bor', 'bxor']

/** The reductions of a dtype. */
export function reductionsOf(dtype: DType): readonly ReduceOp[] {
  return dtype.includes('float') ? ofFloats : ofWhole
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
  set(from: AnyTypedArray, at?: number): void
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
  return (periodOf(dtype, rank) as unknown as Elements)[i % PERIOD]!
}

function computeValue(dtype: DType, rank: number, i: number): Element {
  if (dtype.includes('float')) return encode(dtype, ((i * 7 + rank * 3) % 5) - 2)
  const word = Math.imul((i % 61) + 1, 0x9e3779b1) ^ Math.imul(rank + 1, 0x85ebca6b)
  if (dtype === 'bool') return (word >>> 9) & 1
  if (!dtype.endsWith('64')) return encode(dtype, word)
  return encode(dtype, BigInt(word) * 0x1_0000_0001n + BigInt(rank * (i % 61)))
}

const periods = new Map<string, AnyTypedArray>()

/** The values of a rank, PERIOD of them. */
function periodOf(dtype: DType, rank: number): AnyTypedArray {
  return remembered(`${dtype} ${rank}`, () =>
    arrayOf(dtype, PERIOD, (i) => computeValue(dtype, rank, i)),
  )
}

/** The values of a rank, from the one at `offset` on. */
export function fill<T extends AnyTypedArray>(
  buffer: T,
  dtype: DType,
  rank: number,
  offset = 0,
): T {
  return repeat(buffer, periodOf(dtype, rank), offset)
}

/** Slices of these lengths: the values of a rank from some place on. */
export function slicesOf<D extends DType>(
  dtype: D,
  lengths: readonly number[],
  from: (slice: number) => { readonly rank: number; readonly at?: number },
): TypedArrayOf[D] {
  const slices = newArray(
    dtype,
    lengths.reduce((a, b) => a + b, 0),
  )
  let end = 0
  lengths.forEach((length, slice) => {
    const { rank, at } = from(slice)
    fill(slices.subarray(end, (end += length)), dtype, rank, at)
  })
  return slices
}

function remembered(key: string, make: () => AnyTypedArray): AnyTypedArray {
  const period = periods.get(key) ?? make()
  periods.set(key, period)
  return period
}

/** Copies, as tests fill many buffers: `period` from `offset` on, then the same again. */
function repeat<T extends AnyTypedArray>(buffer: T, period: AnyTypedArray, offset = 0): T {
  const elements = buffer as unknown as Elements
  const start = offset % PERIOD
  const head = period.subarray(start, start + elements.length)
  elements.set(head)
  const rest = Math.min(start, elements.length - head.length)
  elements.set(period.subarray(0, rest), head.length)
  for (let done = PERIOD; done < elements.length; done *= 2) {
    elements.copyWithin(done, 0, elements.length - done)
  }
  return buffer
}

/** The reduction of the values of `size` ranks, in plain arithmetic. */
export function reduced<D extends DType>(
  dtype: D,
  op: ReduceOp,
  size: number,
  length: number,
): TypedArrayOf[D] {
  const period = remembered([dtype, op, size].join(' '), () =>
    arrayOf(dtype, PERIOD, (i) => {
      let sum = valueOf(dtype, 0, i)
      for (let rank = 1; rank < size; rank++) sum = combine(dtype, op, sum, valueOf(dtype, rank, i))
      return op === 'avg' ? scaled(dtype, sum, 1 / size) : sum
    }),
  )
  return repeat(newArray(dtype, length), period)
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
  whole.fill(mark as never)
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

/** The same bits. Only a failure is worth a list of numbers, and the time that a matcher takes. */
export function expectBits(found: AnyTypedArray, expected: AnyTypedArray): void {
  if (sameBits(found, expected)) return
  expect(found).toEqual(expected)
  throw new Error('the bits differ')
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
  const array = newArray(dtype, length)
  const elements = array as unknown as Elements
  for (let i = 0; i < length; i++) elements[i] = valueAt(i)
  return array
}
