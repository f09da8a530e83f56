/** Element types of buffers. */
export type DType = keyof TypedArrayOf

/** The array type of each dtype; those of `group.alloc`. */
export interface TypedArrayOf {
  float32: Float32Array
  float64: Float64Array
  /** The bits of IEEE 754 binary16; a Float16Array, where Node has it, is taken as well. */
  float16: Uint16Array
  /** The upper half of the bits of float32. */
  bfloat16: Uint16Array
  int8: Int8Array
  uint8: Uint8Array
  int32: Int32Array
  uint32: Uint32Array
  int64: BigInt64Array
  uint64: BigUint64Array
  /** A byte each: 0 is false, all others are true. */
  bool: Uint8Array
}

/** A Float16Array, as far as it matters here: the types of Node 20 do not have it. */
interface Float16ArrayLike extends ArrayBufferView {
  readonly [Symbol.toStringTag]: 'Float16Array'
  readonly length: number
  readonly BYTES_PER_ELEMENT: number
  subarray(begin?: number, end?: number): Float16ArrayLike
}

export type AnyTypedArray = TypedArrayOf[DType] | Float16ArrayLike

interface DTypeFacts<D extends DType> {
  readonly code: number
  readonly bytes: number
  readonly kind: 'float' | 'integer' | 'bool'
  readonly array: new (
    buffer: ArrayBufferLike,
    byteOffset: number,
    length: number,
  ) => TypedArrayOf[D]
}

/** Wire code, size and array type of each dtype. Codes never change: they are in frames. */
export const dtypes: { readonly [D in DType]: DTypeFacts<D> } = {
  float32: { code: 1, bytes: 4, kind: 'float', array: Float32Array },
  float64: { code: 2, bytes: 8, kind: 'float', array: Float64Array },
  float16: { code: 4, bytes: 2, kind: 'float', array: Uint16Array },
  bfloat16: { code: 5, bytes: 2, kind: 'float', array: Uint16Array },
  int8: { code: 6, bytes: 1, kind: 'integer', array: Int8Array },
  uint8: { code: 7, bytes: 1, kind: 'integer', array: Uint8Array },
  int32: { code: 3, bytes: 4, kind: 'integer', array: Int32Array },
  uint32: { code: 8, bytes: 4, kind: 'integer', array: Uint32Array },
  int64: { code: 9, bytes: 8, kind: 'integer', array: BigInt64Array },
  uint64: { code: 10, bytes: 8, kind: 'integer', array: BigUint64Array },
  bool: { code: 11, bytes: 1, kind: 'bool', array: Uint8Array },
}

export const dtypeNames = Object.keys(dtypes) as DType[]

/** The dtypes that a typed array of any realm may hold; the first of several is the usual one. */
export function dtypesOf(value: unknown): DType[] {
  const tag = tagOf(value)
  if (tag === 'Float16Array') return ['float16']
  return dtypeNames.filter((name) => dtypes[name].array.name === tag)
}

/** Its dtype by its array type alone; undefined for arrays of 16-bit words, which may be two. */
export function dtypeOf(value: unknown): DType | undefined {
  return tagOf(value) === 'Uint16Array' ? undefined : dtypesOf(value)[0]
}

export function dtypeByCode(code: number): DType | undefined {
  return dtypeNames.find((name) => dtypes[name].code === code)
}

function tagOf(value: unknown): unknown {
  if (!ArrayBuffer.isView(value)) return undefined
  return (value as unknown as Record<symbol, unknown>)[Symbol.toStringTag]
}
