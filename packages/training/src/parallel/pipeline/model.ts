import type { Tensor } from '../../backend/tensorflow.ts'
import type { Module } from '../../nn/module.ts'

/** A recipe for a model that can be built in runs of layers; `shardedMLP(...)` is one. */
export interface PipelineModel {
  /** Number of layers of the whole. */
  readonly layers: number
  /** Builds the layers from `from` up to, but without, `to`. */
  slice(from: number, to: number): Module
  /**
   * After `slice`, where somebody has named layers: the names that no slice of this rank had, and those
   * that it had. A pipeline refuses what no rank has found.
   */
  search?(): LayerSearch
}

export interface LayerSearch {
  readonly missing: readonly string[]
  readonly names: readonly string[]
}

/**
 * A batch, the same on every rank. The first stage reads `inputs`, the last one `labels`; a
 * function is called only there and its tensor freed after use, a tensor stays the caller's.
 */
export interface Batch {
  /** Number of examples; may be left out where `inputs` or `labels` is a tensor. */
  readonly size?: number
  /** [size, ...] float32 */
  readonly inputs: Tensor | (() => Tensor)
  /** [size, ...]; for the default loss [size] int32 */
  readonly labels: Tensor | (() => Tensor)
}
