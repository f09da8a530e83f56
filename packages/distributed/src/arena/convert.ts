import { tsrError } from '@tsrun/core'
import { dtypeOf, type AnyTypedArray } from '../dtype.ts'
import type { HalfDType, Kernels } from '../kernels/kernels.ts'

/** Writes numbers of float32 as 16-bit floats, or the other way; all arrays are of the arena. */
export function convert(
  kernels: Kernels,
  to: AnyTypedArray,
  from: AnyTypedArray,
  factor: number,
): void {
  const [target, source] = [dtypeOf(to), dtypeOf(from)]
  if (to.length === from.length) {
    if (source === 'float32' && isHalf(target)) {
      kernels.narrow(target, to.byteOffset, from.byteOffset, to.length, factor)
      return
    }
    if (isHalf(source) && target === 'float32' && factor === 1) {
      kernels.widen(source, to.byteOffset, from.byteOffset, to.length)
      return
    }
  }
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'to',
    value: `${String(to.length)} of ${String(target)} for ${String(from.length)} of ${String(source)}`,
    expected: 'as many 16-bit floats for float32, or the other way without a factor',
  })
}

function isHalf(dtype: string | undefined): dtype is HalfDType {
  return dtype === 'float16' || dtype === 'bfloat16'
}
