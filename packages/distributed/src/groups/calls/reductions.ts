import { tsrError } from '@tsrun/core'
import type { DType } from '../../dtype.ts'
import type { ReduceOptions } from '../../process-group.ts'
import { premulSum, reductionCodes, reductionsOf, type Reduction } from '../../reduction.ts'

/** What a call reduces by, as the engine takes it. */
export interface CheckedReduction {
  readonly name: Reduction
  readonly factor: number
  readonly deterministic: boolean
}

/** @throws ERR_TSR_ARGUMENT, ERR_TSR_REDUCTION */
export function checkReduction(
  operation: string,
  dtype: DType,
  options: ReduceOptions | undefined,
): CheckedReduction {
  const { op = 'sum', deterministic = false } = options ?? {}
  if (typeof deterministic !== 'boolean') {
    const value = JSON.stringify(deterministic)
    throw tsrError('ERR_TSR_ARGUMENT', { name: 'deterministic', value, expected: 'a boolean' })
  }
  const { name, factor } = readOp(op)
  const allowed = reductionsOf(dtype)
  if (!allowed.includes(name)) {
    const facts = { operation, reduction: name, dtype, allowed: allowed.join(', ') }
    throw tsrError('ERR_TSR_REDUCTION', facts)
  }
  return { name, factor, deterministic }
}

function readOp(op: unknown): { readonly name: Reduction; readonly factor: number } {
  if (typeof op === 'object' && op !== null && 'premulSum' in op) {
    return { name: 'premulSum', factor: premulSum(op.premulSum as number).premulSum }
  }
  if (typeof op === 'string' && op !== 'premulSum' && Object.hasOwn(reductionCodes, op)) {
    return { name: op as Reduction, factor: 1 }
  }
  const words = Object.keys(reductionCodes).filter((name) => name !== 'premulSum')
  const expected = `one of ${words.join(', ')}, or premulSum(factor)`
  throw tsrError('ERR_TSR_ARGUMENT', { name: 'op', value: JSON.stringify(op), expected })
}
