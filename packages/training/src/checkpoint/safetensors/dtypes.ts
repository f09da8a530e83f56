import { widen } from './halves.ts'

/** Arrays that hold the values of a tensor: 16-bit floats as their bits, 8-bit ones as bytes. */
export type TensorValues =
  | Float32Array
  | Float64Array
  | Int8Array
  | Int16Array
  | Int32Array
  | BigInt64Array
  | Uint8Array
  | Uint16Array
  | Uint32Array
  | BigUint64Array

const arrays = {
  BOOL: Uint8Array,
  U8: Uint8Array,
  I8: Int8Array,
  F8_E4M3: Uint8Array,
  F8_E5M2: Uint8Array,
  U16: Uint16Array,
  I16: Int16Array,
  F16: Uint16Array,
  BF16: Uint16Array,
  U32: Uint32Array,
  I32: Int32Array,
  F32: Float32Array,
  U64: BigUint64Array,
  I64: BigInt64Array,
  F64: Float64Array,
} as const satisfies Record<string, new (buffer: ArrayBuffer) => TensorValues>

/** How safetensors names the types of values. */
export type SafetensorsDType = keyof typeof arrays

export function isDType(name: unknown): name is SafetensorsDType {
  return typeof name === 'string' && Object.hasOwn(arrays, name)
}

export function bytesOf(dtype: SafetensorsDType): number {
  return arrays[dtype].BYTES_PER_ELEMENT
}

/** Sees the bytes as values of their type, without a copy. */
export function toValues(dtype: SafetensorsDType, bytes: ArrayBuffer): TensorValues {
  return new arrays[dtype](bytes)
}

/** The type that an array is written as, unless it is said; by its name, for arrays of all realms. */
export function dtypeOf(values: TensorValues): SafetensorsDType {
  const kind = values[Symbol.toStringTag]
  const plain = (Object.keys(arrays) as SafetensorsDType[]).filter((dtype) =>
    /^[FIU]\d+$/.test(dtype),
  )
  return plain.find((dtype) => dtype !== 'F16' && arrays[dtype].name === kind)!
}

/** The values as float32; undefined where they are not numbers of which float32 has most. */
export function toFloat32(dtype: SafetensorsDType, values: TensorValues): Float32Array | undefined {
  if (dtype === 'F32') return values as Float32Array
  if (dtype === 'F64') return Float32Array.from(values as Float64Array)
  if (dtype !== 'F16' && dtype !== 'BF16') return undefined
  return widen(dtype, values as Uint16Array)
}
