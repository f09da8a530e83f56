import { shown, tsrError } from '@tsrun/core'
import { matchNames, type NamePatterns } from '../model/name-patterns.ts'
import { checkOption } from './optimizer.ts'

export interface DecayOptions {
  /** The share of its value that is added to a parameter's gradient (L2 penalty); default 0. */
  readonly weightDecay?: number
  /**
   * The names of parameters that do not decay, for example `'**.bias'`: patterns, in which `*` stands
   * for one part between dots and `**` for any number of them, or a predicate. Default: none.
   */
  readonly withoutDecay?: NamePatterns
}

/**
 * @param fallback - where the options have no `weightDecay`
 * @returns the weight decay of a parameter, by its name
 * @throws ERR_TSR_ARGUMENT
 */
export function decayByName(options: DecayOptions, fallback = 0): (name: string) => number {
  const { weightDecay = fallback, withoutDecay = [] } = options
  checkOption('weightDecay', weightDecay, 0)
  checkPatterns(withoutDecay)
  const isWithout = matchNames(withoutDecay)
  return (name) => (isWithout(name) ? 0 : weightDecay)
}

function checkPatterns(patterns: unknown): void {
  const list: unknown[] = Array.isArray(patterns) ? patterns : [patterns]
  if (typeof patterns === 'function' || list.every((each) => typeof each === 'string')) return
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'withoutDecay',
    value: shown(patterns),
    expected: 'names or patterns of names, or a function of a name',
  })
}
