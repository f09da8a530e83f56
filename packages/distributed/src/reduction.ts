import { dtypes, type DType } from './dtype.ts'

/**
 * How to combine the elements of two ranks.
 *
 * - `sum`, `product`: integers wrap around; for bool they are `or` and `and`.
 * - `avg`: the sum divided by the number of ranks; floats only, because an integer sum may wrap
 * around.
 * - `min`, `max`: NaN if either element is NaN, and -0 is below +0; for bool `and` and `or`.
 * - `band`, `bor`, `bxor`: bitwise; integers and bool only.
 *
 * float16 and bfloat16 are computed in float32 and rounded to nearest, ties to even, each time two
 * elements are combined. A sum or product of two elements is thus the exact result rounded once.
 * (In bfloat16, results below 2^-126 are first rounded to float32.) A NaN result is 0x7e00 in
 * float16 and 0x7fc0 in bfloat16. If the group has several ranks, the bytes of a bool result are 0
 * or 1.
 */
export type ReduceOp = keyof typeof reductionCodes

/** Wire codes of the reductions, shared with the kernels. Frames contain them, so they never change. */
export const reductionCodes = {
  sum: 1,
  avg: 2,
  product: 3,
  min: 4,
  max: 5,
  band: 6,
  bor: 7,
  bxor: 8,
} as const

const ofKind: Readonly<Record<'float' | 'integer' | 'bool', readonly ReduceOp[]>> = {
  float: ['sum', 'avg', 'product', 'min', 'max'],
  integer: ['sum', 'product', 'min', 'max', 'band', 'bor', 'bxor'],
  bool: ['sum', 'product', 'min', 'max', 'band', 'bor', 'bxor'],
}

export function reductionsOf(dtype: DType): readonly ReduceOp[] {
  return ofKind[dtypes[dtype].kind]
}
