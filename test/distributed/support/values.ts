import type { AnyTypedArray, DType, ProcessGroup, ReduceOp, TypedArrayOf } from '@tsrun/distributed'

export const dtypes: readonly DType[] = ['float32', 'float64', 'int32']
export const reductions: readonly ReduceOp[] = ['sum', 'avg', 'product', 'min', 'max']

const types = { float32: Float32Array, float64: Float64Array, int32: Int32Array }

export function newArray<D extends DType>(dtype: D, length: number): TypedArrayOf[D] {
  return new types[dtype](length) as TypedArrayOf[D]
}

/**
 * What rank `rank` puts in. Floats are small integers, so that every order of adding or multiplying
 * gives the same bits; integers fill their whole range, so that sums wrap around.
 */
export function valueOf(dtype: DType, rank: number, i: number): number {
  if (dtype === 'int32') return Math.imul(i + 1, 0x9e3779b1) ^ Math.imul(rank + 1, 0x85ebca6b)
  return ((i * 7 + rank * 3) % 5) - 2
}

export function fill<T extends AnyTypedArray>(buffer: T, dtype: DType, rank: number): T {
  for (let i = 0; i < buffer.length; i++) buffer[i] = valueOf(dtype, rank, i)
  return buffer
}

const references = new Map<string, AnyTypedArray>()

/** The reduction of the values of `size` ranks, in plain arithmetic. */
export function reduced(dtype: DType, op: ReduceOp, size: number, length: number): AnyTypedArray {
  const key = [dtype, op, size, length].join(' ')
  const known = references.get(key)
  if (known !== undefined) return known
  const result = fill(newArray(dtype, length), dtype, 0)
  for (let rank = 1; rank < size; rank++) {
    for (let i = 0; i < length; i++) {
      result[i] = combine(dtype, op, result[i]!, valueOf(dtype, rank, i))
    }
  }
  for (let i = 0; i < length; i++) result[i] = finished(dtype, op, size, result[i]!)
  references.set(key, result)
  return result
}

function combine(dtype: DType, op: ReduceOp, a: number, b: number): number {
  if (op === 'min') return Math.min(a, b)
  if (op === 'max') return Math.max(a, b)
  if (dtype === 'int32') return op === 'product' ? Math.imul(a, b) : (a + b) | 0
  return round(dtype, op === 'product' ? a * b : a + b)
}

/** `avg` is the sum times 1/n in the arithmetic of the dtype. */
function finished(dtype: DType, op: ReduceOp, size: number, sum: number): number {
  if (op !== 'avg') return sum
  if (dtype === 'int32') return Math.trunc(sum / size)
  return round(dtype, sum * round(dtype, 1 / size))
}

function round(dtype: DType, value: number): number {
  return dtype === 'float32' ? Math.fround(value) : value
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
  whole.fill(77)
  const buffer = whole.subarray(guard, guard + length) as TypedArrayOf[D]
  return {
    buffer,
    release: () => {
      const around = [...whole.subarray(0, guard), ...whole.subarray(guard + length)]
      if (around.some((value) => value !== 77)) throw new Error('wrote beside the buffer')
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
  valueAt: (i: number) => number,
): TypedArrayOf[D] {
  const array = newArray(dtype, length)
  for (let i = 0; i < length; i++) array[i] = valueAt(i)
  return array
}
