import { finite } from '@tsrun/core'
import { dtypes, type DType } from './dtype.ts'

/** Reductions without parameters. */
export type ReductionName = 'sum' | 'avg' | 'product' | 'min' | 'max' | 'band' | 'bor' | 'bxor'

/** A sum of scaled inputs, which `premulSum` creates. */
export interface PremulSum {
  readonly premulSum: number
}

/**
 * How to combine the elements of two ranks.
 *
 * - `sum`, `product`: integers wrap around; for bool they are `or` and `and`.
 * - `avg`: the sum divided by the number of ranks; floats only, because an integer sum may wrap
 * around.
 * - `min`, `max`: NaN if either element is NaN, and -0 is below +0; for bool `and` and `or`.
 * - `band`, `bor`, `bxor`: bitwise; integers and bool only.
 * - `premulSum(factor)`: floats only.
 *
 * float16 and bfloat16 are computed in float32 and rounded to nearest, ties to even, each time two
 * elements are combined. A sum or product of two elements is thus the exact result rounded once.
 * (In bfloat16, results below 2^-126 are first rounded to float32.) A NaN result is 0x7e00 in
 * float16 and 0x7fc0 in bfloat16. If the group has several ranks, the bytes of a bool result are 0
 * or 1.
 */
export type ReduceOp = ReductionName | PremulSum

const factorRule = finite()

/**
 * A sum to which each rank contributes `factor` times its input; for float dtypes. All ranks pass
 * the same factor, which is rounded to float32 for all dtypes except float64. It is like PyTorch's
 * `_make_nccl_premul_sum`.
 *
 * @throws ERR_TSR_ARGUMENT when the factor is not a finite number
 */
export function premulSum(factor: number): PremulSum {
  return { premulSum: factorRule.check('factor of premulSum', factor) }
}

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
  premulSum: 9,
} as const satisfies Record<ReductionName | 'premulSum', number>

/** The names of all reductions that the engine computes. */
export type Reduction = keyof typeof reductionCodes

const ofKind: Readonly<Record<'float' | 'integer' | 'bool', readonly Reduction[]>> = {
  float: ['sum', 'avg', 'product', 'min', 'max', 'premulSum'],
  integer: ['sum', 'product', 'min', 'max', 'band', 'bor', 'bxor'],
  bool: ['sum', 'product', 'min', 'max', 'band', 'bor', 'bxor'],
}

export function reductionsOf(dtype: DType): readonly Reduction[] {
  return ofKind[dtypes[dtype].kind]
}
