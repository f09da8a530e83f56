import { matchNames, type NamePatterns } from '../nn/name-patterns.ts'
import { AdaptiveOptimizer, type AdamOptions } from './adaptive.ts'
import { checkOption } from './optimizer.ts'

export interface AdamWOptions extends AdamOptions {
  /** Each step takes learningRate * weightDecay of the values away; default 0.01. */
  readonly weightDecay?: number
  /**
   * The names of parameters that do not decay, for example `'**.bias'`: patterns, in which `*` stands
   * for one part between dots and `**` for any number of them, or a predicate. Default: none.
   */
  readonly withoutDecay?: NamePatterns
}

/**
 * Adam with decoupled weight decay (Loshchilov & Hutter, 2019), as torch.optim.AdamW defines it:
 * p = p - learningRate weightDecay p, and then the step of {@link Adam}.
 *
 * @throws ERR_TSR_ARGUMENT when an option is out of range
 *
 * @example
 * const optimizer = new AdamW({ weightDecay: 0.1, withoutDecay: ['**.bias', '**.ln_1.*'] })
 */
export class AdamW extends AdaptiveOptimizer {
  constructor({ weightDecay = 0.01, withoutDecay = [], ...options }: AdamWOptions = {}) {
    checkOption('weightDecay', weightDecay, 0)
    const isWithout = matchNames(withoutDecay)
    super(options, (name) => (isWithout(name) ? 0 : weightDecay))
  }
}
