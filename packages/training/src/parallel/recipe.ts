import { shown, tsrError, type TsrError } from '@tsrun/core'
import type { Module } from '../model/module.ts'

/** A recipe for a model that can be built in ranges of layers; `shardedMLP(...)` is one. */
export interface PipelineModel {
  /** Number of layers of the whole model. */
  readonly layers: number
  /** Builds the layers from `from` up to, but not including, `to`. */
  slice(from: number, to: number): Module
  /**
   * For a recipe that names layers; called after `slice`. Returns the names that no slice of this rank
   * had, and the names of its layers. A pipeline refuses names that no rank found.
   */
  search?(): LayerSearch
}

export interface LayerSearch {
  readonly missing: readonly string[]
  readonly names: readonly string[]
}

/** @throws ERR_TSR_ARGUMENT unless `model` is a recipe, for example if it was already built */
export function checkRecipe(model: Partial<PipelineModel> | null | undefined): void {
  if (typeof model?.slice === 'function') return
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'model',
    value: shown(model),
    expected:
      'a recipe that builds parts of it, such as shardedMLP(...), and not what build() makes',
  })
}

/** The error for a name in a plan that matches no layer. */
export function unknownLayer(glob: string, names: readonly string[]): TsrError {
  const expected = `names of layers: ${names.join(', ')}`
  return tsrError('ERR_TSR_ARGUMENT', { name: 'plan', value: glob, expected })
}
