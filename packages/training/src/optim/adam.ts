import { AdaptiveOptimizer, type AdamOptions } from './adaptive.ts'

/**
 * Adam (Kingma & Ba, 2015), as torch.optim.Adam defines it: g = g + weightDecay p,
 * m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2,
 * p = p - learningRate (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + epsilon).
 *
 * @throws ERR_TSR_ARGUMENT when an option is out of range, or none that there is
 */
export class Adam extends AdaptiveOptimizer {
  constructor(options: AdamOptions = {}) {
    super(options, 'gradient', 0)
  }
}
