import { dtypes, type DType } from '../dtype.ts'
import type { Reduction } from '../reduction.ts'
import type { Handle, HandleName, MpiAbi } from './abi.ts'

type Handles = MpiAbi['handles']

/** C types that libmpi can calculate with. */
const numbers: Readonly<Partial<Record<DType, HandleName>>> = {
  float32: 'float',
  float64: 'double',
  int8: 'int8_t',
  uint8: 'uint8_t',
  int32: 'int32_t',
  uint32: 'uint32_t',
  int64: 'int64_t',
  uint64: 'uint64_t',
}

/** An average is a sum, divided at the end. */
const sums: Readonly<Partial<Record<Reduction, HandleName>>> = {
  sum: 'op_sum',
  avg: 'op_sum',
  product: 'op_prod',
}
/** Not of floating-point numbers: MPI does not say what comes of NaN and of -0. */
const choices: Readonly<Partial<Record<Reduction, HandleName>>> = {
  min: 'op_min',
  max: 'op_max',
  band: 'op_band',
  bor: 'op_bor',
  bxor: 'op_bxor',
}

/** What libmpi calls a type when it only moves the elements: any of that size. */
export function movedType(handles: Handles, dtype: DType): Handle {
  switch (dtypes[dtype].bytes) {
    case 1:
      return handles.byte
    case 2:
      return handles.uint16_t
    case 8:
      return handles.int64_t
    default:
      return handles.int32_t
  }
}

/** What it calls a type that it calculates with. */
export function numberType(handles: Handles, dtype: DType): Handle {
  const name = numbers[dtype]
  return name === undefined ? movedType(handles, dtype) : handles[name]
}

/** What it calls a reduction; undefined where it cannot do it, or not as we promise. */
export function reductionHandle(
  handles: Handles,
  reduction: Reduction,
  dtype: DType,
): Handle | undefined {
  if (numbers[dtype] === undefined) return undefined
  const isFloat = dtypes[dtype].kind === 'float'
  const name = sums[reduction] ?? (isFloat ? undefined : choices[reduction])
  return name === undefined ? undefined : handles[name]
}
