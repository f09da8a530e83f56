import { argumentError, choice, count, declareOptions, finite, type Rules } from '@tsrun/core'

/**
 * Returns the learning rate of a step. Steps are optimizer steps, not micro-batches, and start at
 * 0. A resumed job continues with the step number that it had reached.
 */
export type LearningRateSchedule = (step: number) => number

/** Options of `constantRate`. */
export interface ConstantRateOptions {
  /** The rate after the warm-up. */
  readonly peak: number
  /** The number of steps in which the rate rises linearly up to `peak`; default 0. */
  readonly warmup?: number
}

/** Options of `warmupCosine`. */
export interface WarmupCosineOptions extends ConstantRateOptions {
  /** The step at which the rate reaches `minimum`. */
  readonly total: number
  /** The final rate; default 0. */
  readonly minimum?: number
}

/** Options of `warmupStableDecay`. */
export interface WarmupStableDecayOptions extends WarmupCosineOptions {
  /** The number of steps before `total` in which the rate falls. */
  readonly decay: number
  /** How the rate falls: linearly (default), as half a cosine, or as 1 - sqrt (Haegele et al., 2024). */
  readonly shape?: 'linear' | 'cosine' | 'sqrt'
}

/** Functions that fall from 1 to 0 while `progress` rises from 0 to 1. */
const shapes = {
  linear: (progress: number) => 1 - progress,
  cosine: (progress: number) => 0.5 * (1 + Math.cos(Math.PI * progress)),
  sqrt: (progress: number) => 1 - Math.sqrt(progress),
} as const

const stepRule = finite({ from: 0 })
const steps = count()

const constantRules = {
  peak: finite({ from: 0 }),
  warmup: steps.default(0),
} satisfies Rules<ConstantRateOptions>

const cosineRules = {
  ...constantRules,
  total: steps,
  minimum: finite({ from: 0 }).default(0),
} satisfies Rules<WarmupCosineOptions>

const readConstant = declareOptions(constantRules)
const readCosine = declareOptions(cosineRules)
const readStable = declareOptions({
  ...cosineRules,
  decay: steps,
  shape: choice('linear', 'cosine', 'sqrt').default('linear'),
} satisfies Rules<WarmupStableDecayOptions>)

/**
 * A constant rate, after an optional warm-up.
 *
 * @throws ERR_TSR_ARGUMENT for an unknown option or one that is out of range
 */
export function constantRate(options: ConstantRateOptions): LearningRateSchedule {
  const { peak, warmup } = readConstant(options)
  return (step) => {
    stepRule.check('step', step)
    // The first step has a rate above 0, and the first step after the warm-up has the peak rate.
    return step < warmup ? (peak * (step + 1)) / (warmup + 1) : peak
  }
}

/**
 * A linear warm-up, then half a cosine down to `minimum` (Loshchilov & Hutter, 2017).
 *
 * @throws ERR_TSR_ARGUMENT for an unknown option or one that is out of range
 *
 * @example
 * const schedule = warmupCosine({ peak: 3e-4, warmup: 100, total: 2000, minimum: 3e-5 })
 * for (let step = 0; step < 2000; step++) {
 *   optimizer.learningRate = schedule(step)
 * }
 */
export function warmupCosine(options: WarmupCosineOptions): LearningRateSchedule {
  const complete = readCosine(options)
  const { total, warmup } = complete
  return warmupStableDecay({ ...complete, decay: Math.max(0, total - warmup), shape: 'cosine' })
}

/**
 * A linear warm-up, a long phase at `peak`, and a short decay to `minimum` (WSD; Hu et al., "MiniCPM",
 * 2024). To train longer, continue from a step before the decay with a larger `total`.
 *
 * @throws ERR_TSR_ARGUMENT for an unknown option or one that is out of range
 *
 * @example
 * warmupStableDecay({ peak: 3e-4, warmup: 100, total: 2000, decay: 400 })
 */
export function warmupStableDecay(options: WarmupStableDecayOptions): LearningRateSchedule {
  const { peak, warmup, total, decay, minimum, shape } = readStable(options)
  const rise = constantRate({ peak, warmup })
  const start = total - decay
  if (start < warmup) {
    throw argumentError(
      'warmup + decay',
      `${warmup} + ${decay} steps`,
      `at most the ${total} steps of total`,
    )
  }
  return (step) => {
    const rate = rise(step)
    if (step >= total) return minimum
    if (step <= start) return rate
    return minimum + (peak - minimum) * shapes[shape]((step - start) / decay)
  }
}
