import type { DType, ReduceOp, TypedArrayOf } from '@tsrun/distributed'
import { combine, scaled, type Element } from '../support/arithmetic.ts'
import { arrayOf } from '../support/values.ts'

/** The same kind of array as `like`, over another buffer. */
export function viewOf<A extends TypedArrayOf[DType]>(like: A, buffer: ArrayBufferLike): A {
  return new (like.constructor as new (buffer: ArrayBufferLike) => A)(buffer)
}

/**
 * Reproducible elements: integers and 16-bit floats of all bits there are (NaN, infinities and
 * subnormal numbers too), other floats of both signs and many magnitudes.
 */
export function elements<D extends DType>(dtype: D, length: number, seed: number): TypedArrayOf[D] {
  let state = seed * 2_654_435_761 + length
  const next = (): number => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0
    return state
  }
  return arrayOf(dtype, length, (i) => {
    if (dtype === 'float32' || dtype === 'float64') return (next() / 2 ** 31) * 10 ** (i % 7)
    if (dtype.endsWith('64')) return (BigInt(next()) << 32n) ^ BigInt(next())
    // the low bits of the generator repeat soon
    return dtype.endsWith('32') ? next() : next() >> 13
  })
}

/** One element after the other, in plain JavaScript: what the kernels must equal to the bit. */
export function referenceCombine<D extends DType>(
  op: ReduceOp,
  dtype: D,
  a: TypedArrayOf[D],
  b: TypedArrayOf[D],
): TypedArrayOf[D] {
  return arrayOf(dtype, a.length, (i) => combine(dtype, op, elementAt(a, i), elementAt(b, i)))
}

export function referenceScale<D extends DType>(
  dtype: D,
  values: TypedArrayOf[D],
  factor: number,
): TypedArrayOf[D] {
  return arrayOf(dtype, values.length, (i) => scaled(dtype, elementAt(values, i), factor))
}

function elementAt(array: TypedArrayOf[DType], i: number): Element {
  return array[i]!
}
