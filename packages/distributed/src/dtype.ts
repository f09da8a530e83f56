/** Element types of buffers. */
export type DType = 'float32' | 'float64' | 'int32'

export interface TypedArrayOf {
  float32: Float32Array
  float64: Float64Array
  int32: Int32Array
}

export type AnyTypedArray = TypedArrayOf[DType]
