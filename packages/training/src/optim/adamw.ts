import { AdaptiveOptimizer, type AdamOptions } from './adaptive.ts'

export interface AdamWOptions extends AdamOptions {
  /** Each step takes learningRate * weightDecay of the values away; default 0.01. */
  readonly weightDecay?: number
}

/**
 * Adam with decoupled weight decay (Loshchilov & Hutter, 2019), as torch.optim.AdamW defines it:
 * p = p - learningRate weightDecay p, and then the step of {@link Adam} without a decay of its own.
 *
 * @throws ERR_TSR_ARGUMENT when an option is out of range, or none that there is
 *
 * @example
 * const optimizer = new AdamW({ weightDecay: 0.1, withoutDecay: ['**.bias', '**.ln_1.*'] })
 */
export class AdamW extends AdaptiveOptimizer {
  constructor(options: AdamWOptions = {}) {
    super(options, 'value', 0.01)
  }
}
