import { matchNames, type NamePatterns } from '../nn/name-patterns.ts'
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

/** @returns the weight decay of a parameter, by its name */
export function decayByName({
  weightDecay = 0,
  withoutDecay = [],
}: DecayOptions): (name: string) => number {
  checkOption('weightDecay', weightDecay, 0)
  const isWithout = matchNames(withoutDecay)
  return (name) => (isWithout(name) ? 0 : weightDecay)
}
