import { argumentError, choice } from '@tsrun/core'

/** The array type on the host for each dtype of a tensor. A bool takes one byte, 0 or 1. */
export interface HostArrays {
  readonly float32: Float32Array
  readonly int32: Int32Array
  readonly bool: Uint8Array
}

/** The dtypes whose values are numbers of a fixed size. */
export type HostDType = keyof HostArrays
/** An array on the host with the values of a tensor. */
export type HostArray = HostArrays[HostDType]

const arrays: { readonly [D in HostDType]: new (length: number) => HostArrays[D] } = {
  float32: Float32Array,
  int32: Int32Array,
  bool: Uint8Array,
}

/** The validation rule for a dtype. */
export const dtypeRule = choice(...(Object.keys(arrays) as HostDType[]))

/**
 * @returns undefined if an array of this dtype can hold the number, otherwise a text that says what the
 *   array can hold
 */
export function fits(value: number, dtype: HostDType): string | undefined {
  if (dtype === 'int32') return (value | 0) === value ? undefined : 'a whole number of 32 bits'
  if (dtype === 'bool') return value === 0 || value === 1 ? undefined : '0 or 1'
  return Number.isFinite(Math.fround(value)) ? undefined : 'a finite number of 32 bits'
}

/** The number of values of a tensor. */
export function sizeOf(shape: readonly number[]): number {
  return shape.reduce((product, length) => product * length, 1)
}

export function newArray<D extends HostDType>(shape: readonly number[], dtype: D): HostArrays[D] {
  return new arrays[dtype](sizeOf(shape))
}

/** @throws ERR_TSR_ARGUMENT unless `array` is of the type for `dtype` and of the size for `shape` */
export function checkArray(
  name: string,
  array: unknown,
  shape: readonly number[],
  dtype: string,
): void {
  if (!Object.hasOwn(arrays, dtype)) {
    throw argumentError(`the dtype of ${name}`, dtype, `one of ${Object.keys(arrays).join(', ')}`)
  }
  // Compare class names, because an array from another realm is not an instance of this realm's class.
  const wanted = arrays[dtype as HostDType].name
  const length = sizeOf(shape)
  const found = describe(array)
  if (found === `${wanted}[${length}]`) return
  throw argumentError(
    name,
    found,
    `${wanted}[${length}], for a ${dtype} tensor of shape [${shape.join(', ')}]`,
  )
}

function describe(array: unknown): string {
  if (!ArrayBuffer.isView(array)) return typeof array
  const { [Symbol.toStringTag]: kind, length } = array as ArrayBufferView & Partial<HostArray>
  return `${kind ?? ''}[${length ?? array.byteLength}]`
}

/** `toHost`: from tensors to host arrays. `toTensor`: from host arrays to tensors. */
export type CopyDirection = 'toHost' | 'toTensor'

/** How often values were copied in one direction. */
export interface Copies {
  /** The number of copies of a whole tensor or array. */
  readonly count: number
  readonly bytes: number
}

/** Copies in each direction; see `copyCounts`. */
export type CopyCounts = Readonly<Record<CopyDirection, Copies>>

const counts = { toHost: { count: 0, bytes: 0 }, toTensor: { count: 0, bytes: 0 } }

/** Counts a copy by this package, or a copy that the backend is known to make. */
export function countCopy(direction: CopyDirection, bytes: number): void {
  const sum = counts[direction]
  sum.count++
  sum.bytes += bytes
}

/** Returns the copies between tensors and host arrays since the start of this process. */
export function copyCounts(): CopyCounts {
  return structuredClone(counts)
}
