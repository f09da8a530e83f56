/** Labelled examples. Nothing is read before it is asked for. */
export interface Dataset {
  /** Number of examples. */
  readonly size: number
  /** Values of one input. */
  readonly features: number
  /** Number of classes; labels run from 0. */
  readonly classes: number

  /** Writes the inputs of the examples `indices` to `out` [indices.length x features]. */
  readInputs(indices: Int32Array, out: Float32Array): void

  /** Writes the labels of the examples `indices` to `out` [indices.length]. */
  readLabels(indices: Int32Array, out: Int32Array): void
}
