import type { DType, TypedArrayOf } from '../../../packages/distributed/src/dtype.ts'
import type { ReduceOp } from '../../../packages/distributed/src/process-group.ts'

const constructors = { float32: Float32Array, float64: Float64Array, int32: Int32Array }

/** The same kind of array as `like`, over another buffer. */
export function viewOf<A extends TypedArrayOf[DType]>(like: A, buffer: ArrayBufferLike): A {
  return new (like.constructor as new (buffer: ArrayBufferLike) => A)(buffer)
}

/** Reproducible elements of both signs and many magnitudes; integers large enough to overflow. */
export function elements<D extends DType>(dtype: D, length: number, seed: number): TypedArrayOf[D] {
  const array = new constructors[dtype](length)
  let state = seed * 2_654_435_761 + length
  for (let i = 0; i < length; i++) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0
    array[i] = dtype === 'int32' ? state : (state / 2 ** 31) * 10 ** (i % 7)
  }
  return array as TypedArrayOf[D]
}

const scalar = {
  sum: (a: number, b: number) => a + b,
  avg: (a: number, b: number) => a + b,
  product: (a: number, b: number) => a * b,
  min: Math.min,
  max: Math.max,
}

/** One element after the other, in plain JavaScript: what the kernels must equal to the bit. */
export function referenceCombine<D extends DType>(
  op: ReduceOp,
  dtype: D,
  a: TypedArrayOf[D],
  b: TypedArrayOf[D],
): TypedArrayOf[D] {
  // A double holds every exact result but the product of two integers.
  const combine = dtype === 'int32' && op === 'product' ? Math.imul : scalar[op]
  return a.map((value, i) => combine(value, b[i]!)) as TypedArrayOf[D]
}

export function referenceDivide<D extends DType>(
  dtype: D,
  values: TypedArrayOf[D],
  divisor: number,
): TypedArrayOf[D] {
  if (dtype === 'int32') return values.map((x) => Math.trunc(x / divisor)) as TypedArrayOf[D]
  const factor = dtype === 'float32' ? Math.fround(1 / divisor) : 1 / divisor
  return values.map((x) => x * factor) as TypedArrayOf[D]
}
