import { count, list } from '@tsrun/core'
import type { HeldValues } from '../../backend/held-values.ts'

/** The values of a tensor. Floats of 16 and 8 bits are stored as integers of the same bits. */
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

/** The names of dtypes in safetensors files. */
export type SafetensorsDType = keyof typeof arrays

export function isDType(name: unknown): name is SafetensorsDType {
  return typeof name === 'string' && Object.hasOwn(arrays, name)
}

export function bytesOf(dtype: SafetensorsDType): number {
  return arrays[dtype].BYTES_PER_ELEMENT
}

/** Returns the bytes from `place` as values of a dtype, without a copy. */
export function toValues(
  dtype: SafetensorsDType,
  bytes: ArrayBufferLike,
  length?: number,
  place = 0,
): TensorValues {
  return new arrays[dtype](bytes as ArrayBuffer, place, length)
}

/** Returns the default dtype of the values, and their size in bytes. */
export function layoutOf(values: TensorValues | HeldValues) {
  if (!ArrayBuffer.isView(values)) return { dtype: 'F32' as const, bytes: 4 * values.length }
  return { dtype: dtypeOf(values), bytes: values.byteLength }
}

/** Returns the default dtype of an array. Compares class names, because each realm has its own classes. */
function dtypeOf(values: TensorValues): SafetensorsDType {
  const kind = values[Symbol.toStringTag]
  return (Object.keys(arrays) as SafetensorsDType[]).find(
    (dtype) => /^(?!F16)[FIU]\d+$/.test(dtype) && arrays[dtype].name === kind,
  )!
}

/** The dtypes that `toFloat32` converts. */
type FloatDType = 'F32' | 'F64' | 'F16' | 'BF16'

export function isFloat(dtype: SafetensorsDType): dtype is FloatDType {
  return ['F32', 'F64', 'F16', 'BF16'].includes(dtype)
}

export function toFloat32(dtype: FloatDType, values: TensorValues): Float32Array {
  if (dtype === 'F32') return values as Float32Array
  if (dtype === 'F64') return Float32Array.from(values as Float64Array)
  // Floats of 16 bits are stored as integers of the same bits.
  const halves = values as Uint16Array
  const floats = new Float32Array(halves.length)
  if (dtype === 'BF16') {
    const bits = new Uint32Array(floats.buffer)
    for (let i = 0; i < bits.length; i++) bits[i] = halves[i]! << 16
    return floats
  }
  float16 ??= Float32Array.from({ length: 1 << 16 }, (_, half) => valueOf(half))
  for (let i = 0; i < floats.length; i++) floats[i] = float16[halves[i]!]!
  return floats
}

let float16: Float32Array | undefined

function valueOf(half: number) {
  const sign = half & 0x8000 ? -1 : 1
  const exponent = (half >>> 10) & 31
  const fraction = half & 1023
  if (exponent === 0) return sign * fraction * 2 ** -24
  if (exponent === 31) return fraction === 0 ? sign * Infinity : NaN
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15)
}

export const { is: isCounts } = list(count())

/** Shortens a name from a file, and escapes its control characters, for an error message. */
export function shorten(name: string): string {
  const text = JSON.stringify(name).slice(1, -1)
  return text.length <= LONGEST_NAME ? text : `${text.slice(0, LONGEST_NAME)}…`
}

const LONGEST_NAME = 128
