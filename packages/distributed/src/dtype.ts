/** Element types of buffers. */
export type DType = keyof TypedArrayOf

/** The array type of each dtype, as `group.alloc` returns it. */
export interface TypedArrayOf {
  float32: Float32Array
  float64: Float64Array
  /** The bits of IEEE 754 binary16. A Float16Array is accepted too, if Node has it. */
  float16: Uint16Array
  /** The upper half of the bits of float32. */
  bfloat16: Uint16Array
  int8: Int8Array
  uint8: Uint8Array
  int32: Int32Array
  uint32: Uint32Array
  int64: BigInt64Array
  uint64: BigUint64Array
  /** One byte for each element: 0 is false, any other value is true. */
  bool: Uint8Array
}

/** Declares the used part of Float16Array, which the types of Node 20 lack. */
interface Float16ArrayLike extends ArrayBufferView {
  readonly [Symbol.toStringTag]: 'Float16Array'
  readonly length: number
  readonly BYTES_PER_ELEMENT: number
  subarray(begin?: number, end?: number): Float16ArrayLike
}

/** Any array that a buffer may be. `TypedArrayOf` has the array class of each dtype. */
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

/** Wire code, size and array type of each dtype. Frames contain the codes, so they never change. */
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

/** The dtypes of each `Symbol.toStringTag`, the default dtype first. */
const dtypesByTag = new Map<unknown, readonly DType[]>([
  ...dtypeNames.map((name): [string, DType[]] => {
    const { array } = dtypes[name]
    return [array.name, dtypeNames.filter((other) => dtypes[other].array === array)]
  }),
  ['Float16Array', ['float16']],
])

/** Returns the dtypes that a typed array of any realm may hold, the default dtype first. */
export function dtypesOf(value: unknown): readonly DType[] {
  if (!ArrayBuffer.isView(value)) return []
  const tag: unknown = (value as unknown as Record<symbol, unknown>)[Symbol.toStringTag]
  return dtypesByTag.get(tag) ?? []
}

export function dtypeByCode(code: number): DType | undefined {
  return dtypeNames.find((name) => dtypes[name].code === code)
}

/** An allocated block of memory whose array type does not determine its dtype. */
interface Block {
  readonly end: number
  readonly dtype: DType
}

/**
 * The allocated blocks of each memory, by start offset. Blocks are kept per memory, not per world,
 * so that an array keeps its dtype in every world. (A WebAssembly memory cannot have extra
 * properties.)
 */
const blocksOf = new WeakMap<ArrayBufferLike, Map<number, Block>>()

/** Records the dtype of an allocated array, which also applies to its subarrays. */
export function recordDType(view: ArrayBufferView, dtype: DType): void {
  if (dtypesOf(view).length < 2) return
  const { buffer, byteOffset, byteLength } = view
  const blocks = blocksOf.get(buffer) ?? new Map<number, Block>()
  blocksOf.set(buffer, blocks)
  blocks.set(byteOffset, { end: byteOffset + byteLength, dtype })
}

/** Forgets the dtype of an array. Must be called before the memory is reused. */
export function forgetDType({ buffer, byteOffset }: ArrayBufferView): void {
  blocksOf.get(buffer)?.delete(byteOffset)
}

/**
 * Returns the dtype for which an array, or the array that contains it, was allocated; otherwise the
 * default of its class. Returns undefined for 16-bit words of unknown origin, which may be float16
 * or bfloat16.
 */
export function dtypeOf(value: unknown): DType | undefined {
  const candidates = dtypesOf(value)
  if (candidates.length < 2) return candidates[0]
  const { buffer, byteOffset, byteLength } = value as ArrayBufferView
  for (const [start, { end, dtype }] of blocksOf.get(buffer) ?? []) {
    const isPart = byteOffset >= start && byteOffset + byteLength <= end
    if (isPart && candidates.includes(dtype)) return dtype
  }
  return candidates[0] === 'uint8' ? 'uint8' : undefined
}
