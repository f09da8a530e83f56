import { argumentError, either, flag, shown } from '@tsrun/core'
import { chainOf, modulesOf, type Module } from '../model/module.ts'
import { matchNames, namePatterns, unmatched, type NamePatterns } from '../model/name-patterns.ts'

/** A recipe for a pipeline model: it can build any range of layers. `shardedMLP(...)` returns one. */
export interface PipelineModel {
  /** The number of layers in the whole model. */
  readonly layers: number
  /** Builds the layers from index `from` up to, but not including, index `to`. */
  slice(from: number, to: number): Module
  /**
   * Returns the layer names of this rank's slices, and the patterns of the plan that match none of these
   * names. It is called after `slice`. A pipeline throws if a pattern matches on no rank. Only recipes
   * with a plan have this method.
   */
  search?(): LayerSearch
}

/** The layer names of a rank, and the patterns of a plan that match none of them. */
export interface LayerSearch {
  readonly missing: readonly string[]
  readonly names: readonly string[]
}

/**
 * Checks that `model` is a recipe that can build parts of a model.
 *
 * @throws ERR_TSR_ARGUMENT, for example for a model that is already built
 */
export function checkRecipe(model: Partial<PipelineModel> | null | undefined): void {
  if (typeof model?.slice === 'function') return
  throw argumentError(
    'model',
    shown(model),
    'a recipe that builds parts of it, such as shardedMLP(...), and not what build() makes',
  )
}

/**
 * Checks that each pattern matches a layer of some rank.
 *
 * @param searches - one for each rank; undefined for a rank without patterns
 * @throws ERR_TSR_ARGUMENT
 */
export function checkSearch(
  option: 'plan' | 'recompute',
  searches: readonly (LayerSearch | undefined)[],
): void {
  const all = searches.filter((search) => search !== undefined)
  const glob = all[0]?.missing.find((each) => all.every(({ missing }) => missing.includes(each)))
  if (glob === undefined) return
  const names = [...new Set(all.flatMap(({ names }) => names))]
  throw argumentError(option, glob, `names of layers: ${names.join(', ')}`)
}

/**
 * The layers whose activations are recomputed: all, none, or those with matching names. A layer's name is
 * its key in `children`, or else its index.
 */
export type Recompute = boolean | NamePatterns

export const recomputeRule = either(flag, namePatterns)

/** Returns in `chosen`, for each layer of a model, whether its activations are recomputed. */
export function searchRecomputed(
  recompute: Recompute,
  model: Partial<Module>,
  layers = chainOf(model),
): LayerSearch & { readonly chosen: readonly boolean[] } {
  const known = new Map(Array.from(modulesOf(model), ({ name, module }) => [module, name]))
  const names = layers.map((layer, i) => known.get(layer) ?? String(i))
  const patterns = typeof recompute === 'boolean' ? () => recompute : recompute
  const isChosen = matchNames(patterns)
  return {
    names,
    missing: unmatched(patterns, names),
    chosen: names.map((name) => isChosen(name)),
  }
}

/**
 * Finds the layers of a whole model whose activations are recomputed.
 *
 * @throws ERR_TSR_ARGUMENT for a pattern that matches no layer
 */
export function recomputedLayers(
  ...search: Parameters<typeof searchRecomputed>
): readonly boolean[] {
  const found = searchRecomputed(...search)
  checkSearch('recompute', [found])
  return found.chosen
}
