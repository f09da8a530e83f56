import { either, flag } from '@tsrun/core'
import { chainOf, modulesOf, type Module } from '../model/module.ts'
import { matchNames, namePatterns, unmatched, type NamePatterns } from '../model/name-patterns.ts'
import { checkSearch, type LayerSearch } from './recipe.ts'

/**
 * The layers whose activations are recomputed: all, none, or those with matching names. A layer's name is
 * its key in `children`, or its index if it has none.
 */
export type Recompute = boolean | NamePatterns

export const recomputeRule = either(flag, namePatterns)

/**
 * Finds the layers of a model whose activations are recomputed.
 *
 * @returns the search, and in `chosen` for each layer, whether its activations are recomputed
 */
export function searchRecomputed(
  recompute: Recompute,
  model: Partial<Module>,
  layers = chainOf(model),
): LayerSearch & { readonly chosen: readonly boolean[] } {
  const known = new Map(Array.from(modulesOf(model), ({ name, module }) => [module, name]))
  const names = layers.map((layer, i) => known.get(layer) ?? String(i))
  if (typeof recompute === 'boolean') {
    return { names, missing: [], chosen: names.map(() => recompute) }
  }
  const isChosen = matchNames(recompute)
  return {
    names,
    missing: unmatched(recompute, names),
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
