/** Element types of buffers. */
export type DType = 'float32' | 'float64' | 'int32'

export interface TypedArrayOf {
  float32: Float32Array
  float64: Float64Array
  int32: Int32Array
}

export type AnyTypedArray = TypedArrayOf[DType]

interface DTypeFacts<D extends DType> {
  readonly code: number
  readonly bytes: number
  readonly tag: string
  readonly view: (buffer: ArrayBufferLike, byteOffset: number, length: number) => TypedArrayOf[D]
}

/** Wire code, size and array type of each dtype. Codes never change: they are in frames. */
export const dtypes: { readonly [D in DType]: DTypeFacts<D> } = {
  float32: {
    code: 1,
    bytes: 4,
    tag: 'Float32Array',
    view: (buffer, at, length) => new Float32Array(buffer, at, length),
  },
  float64: {
    code: 2,
    bytes: 8,
    tag: 'Float64Array',
    view: (buffer, at, length) => new Float64Array(buffer, at, length),
  },
  int32: {
    code: 3,
    bytes: 4,
    tag: 'Int32Array',
    view: (buffer, at, length) => new Int32Array(buffer, at, length),
  },
}

const names = Object.keys(dtypes) as DType[]

/** The dtype of a typed array of any realm, or undefined when it is none of ours. */
export function dtypeOf(value: unknown): DType | undefined {
  if (!ArrayBuffer.isView(value)) return undefined
  const tag = (value as unknown as Record<symbol, unknown>)[Symbol.toStringTag]
  return names.find((name) => dtypes[name].tag === tag)
}

export function dtypeByCode(code: number): DType | undefined {
  return names.find((name) => dtypes[name].code === code)
}
