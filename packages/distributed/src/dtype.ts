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

/** By the tag of a typed array: the dtypes that it may hold, the usual one first. */
const dtypesByTag = new Map<unknown, readonly DType[]>([
  ...dtypeNames.map((name): [string, DType[]] => {
    const { array } = dtypes[name]
    return [array.name, dtypeNames.filter((other) => dtypes[other].array === array)]
  }),
  ['Float16Array', ['float16']],
])

/** The dtypes that a typed array of any realm may hold, the usual one first. */
export function dtypesOf(value: unknown): readonly DType[] {
  if (!ArrayBuffer.isView(value)) return []
  const tag: unknown = (value as unknown as Record<symbol, unknown>)[Symbol.toStringTag]
  return dtypesByTag.get(tag) ?? []
}

export function dtypeByCode(code: number): DType | undefined {
  return dtypeNames.find((name) => dtypes[name].code === code)
}

/** A block of a memory that was allocated for a dtype that its array type does not tell. */
interface Block {
  readonly end: number
  readonly dtype: DType
}

/**
 * The blocks of each memory, by their start. They belong to the memory and not to a world: an array
 * keeps its dtype wherever it is used. (WebAssembly's memories take no properties.)
 */
const blocksOf = new WeakMap<ArrayBufferLike, Map<number, Block>>()

/** Records the dtype of an array that has been allocated, for the array and all parts of it. */
export function recordDType(view: ArrayBufferView, dtype: DType): void {
  if (dtypesOf(view).length < 2) return
  const { buffer, byteOffset, byteLength } = view
  const blocks = blocksOf.get(buffer) ?? new Map<number, Block>()
  blocksOf.set(buffer, blocks)
  blocks.set(byteOffset, { end: byteOffset + byteLength, dtype })
}

/** To be called before the memory of an allocated array is used for something else. */
export function forgetDType({ buffer, byteOffset }: ArrayBufferView): void {
  blocksOf.get(buffer)?.delete(byteOffset)
}

/**
 * The dtype that an array, or the array that it is a part of, was allocated for; else the usual one
 * of its type. Undefined for an array of 16-bit words of unknown origin, which may be one of two.
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
