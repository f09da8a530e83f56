import { planError } from '../tensor/plan-error.ts'
import type { LayerSearch } from './model.ts'

/**
 * Whether every layer that somebody has named is on one of the ranks.
 *
 * @param searches - of each rank
 * @throws ERR_TSR_ARGUMENT
 */
export function checkSearch(searches: readonly (LayerSearch | undefined)[]): void {
  const all = searches.filter((search) => search !== undefined)
  const glob = all[0]?.missing.find((each) => all.every(({ missing }) => missing.includes(each)))
  if (glob === undefined) return
  throw planError(glob, [...new Set(all.flatMap(({ names }) => names))])
}
