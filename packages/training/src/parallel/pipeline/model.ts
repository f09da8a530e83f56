import { shown, tsrError } from '@tsrun/core'
import type { Tensor } from '../../backend/tfjs.ts'
import type { Module } from '../../model/module.ts'

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

/** @throws ERR_TSR_ARGUMENT unless it is a recipe, as when somebody has built the model already */
export function checkModel(model: Partial<PipelineModel> | null | undefined): void {
  if (typeof model?.slice === 'function') return
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'model',
    value: shown(model),
    expected:
      'a recipe that builds parts of it, such as shardedMLP(...), and not what build() makes',
  })
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
