import { finite } from '@tsrun/core'
import { dtypes, type DType } from './dtype.ts'

/** Reductions that a word names. */
export type ReductionName = 'sum' | 'avg' | 'product' | 'min' | 'max' | 'band' | 'bor' | 'bxor'

/** A sum of inputs that were multiplied before; see `premulSum`. */
export interface PremulSum {
  readonly premulSum: number
}

/**
 * What a reduction does to the elements of two ranks.
 *
 * - `sum`, `product`: integers wrap around; for bool they are `or` and `and`.
 * - `avg`: the sum divided by the number of ranks. Floats only: the sum of integers may wrap around.
 * - `min`, `max`: NaN when either element is NaN, and -0 is below +0; for bool `and` and `or`.
 * - `band`, `bor`, `bxor`: of the bits; integers and bool only.
 * - `premulSum(factor)`: floats only.
 *
 * float16 and bfloat16 are computed in float32 and rounded to nearest, ties to even, at each
 * combination of two elements: a sum or product of two is the exact one rounded once (in bfloat16,
 * results below 2^-126 are rounded to float32 first). Their NaN results are 0x7e00 and 0x7fc0. The
 * bytes of a bool result are 0 or 1 in groups of several ranks.
 */
export type ReduceOp = ReductionName | PremulSum

const factorRule = finite()

/**
 * A sum to which each rank contributes `factor` times its input, for float dtypes. The factor, which
 * is the same on all ranks, is rounded to float32 for all dtypes but float64. As
 * `_make_nccl_premul_sum` of PyTorch.
 *
 * @throws ERR_TSR_ARGUMENT when the factor is not a finite number
 */
export function premulSum(factor: number): PremulSum {
  return { premulSum: factorRule.check('factor of premulSum', factor) }
}

/** Wire codes of the reductions, known to the kernels too. They never change: they are in frames. */
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

/** A reduction as the engine knows it. */
export type Reduction = keyof typeof reductionCodes

const ofKind: Readonly<Record<'float' | 'integer' | 'bool', readonly Reduction[]>> = {
  float: ['sum', 'avg', 'product', 'min', 'max', 'premulSum'],
  integer: ['sum', 'product', 'min', 'max', 'band', 'bor', 'bxor'],
  bool: ['sum', 'product', 'min', 'max', 'band', 'bor', 'bxor'],
}

/** The reductions that make sense for a dtype. */
export function reductionsOf(dtype: DType): readonly Reduction[] {
  return ofKind[dtypes[dtype].kind]
}
