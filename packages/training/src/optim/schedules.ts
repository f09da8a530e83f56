import { refuseUnknown, tsrError } from '@tsrun/core'
import { checkOption } from './optimizer.ts'

/**
 * The learning rate of a step. Steps are those of the optimizer, not of micro-batches, and begin with
 * 0; a job that goes on asks for the step that it has come to.
 */
export type LearningRateSchedule = (step: number) => number

export interface ConstantRateOptions {
  /** The rate behind the warm-up. */
  readonly peak: number
  /** Number of steps on which the rate rises, linearly, to `peak`; default 0. */
  readonly warmup?: number
}

export interface WarmupCosineOptions extends ConstantRateOptions {
  /** The step from which on the rate is `minimum`. */
  readonly total: number
  /** Default 0. */
  readonly minimum?: number
}

export interface WarmupStableDecayOptions extends WarmupCosineOptions {
  /** Number of steps before `total` on which the rate falls. */
  readonly decay: number
  /** How it falls: a line (default), the half of a cosine, or 1 - sqrt (Haegele et al., 2024). */
  readonly shape?: 'linear' | 'cosine' | 'sqrt'
}

const CONSTANT = { peak: true, warmup: true } satisfies Record<keyof ConstantRateOptions, true>
const COSINE = {
  ...CONSTANT,
  total: true,
  minimum: true,
} satisfies Record<keyof WarmupCosineOptions, true>
const STABLE = {
  ...COSINE,
  decay: true,
  shape: true,
} satisfies Record<keyof WarmupStableDecayOptions, true>

/** From 1 to 0 while `progress` goes from 0 to 1. */
const shapes = {
  linear: (progress: number) => 1 - progress,
  cosine: (progress: number) => 0.5 * (1 + Math.cos(Math.PI * progress)),
  sqrt: (progress: number) => 1 - Math.sqrt(progress),
} as const

/**
 * The same rate at all steps, after a warm-up if there is one.
 *
 * @throws ERR_TSR_ARGUMENT when an option is out of range, or none that there is
 */
export function constantRate(options: ConstantRateOptions): LearningRateSchedule {
  refuseUnknown(options, Object.keys(CONSTANT))
  const { peak, warmup = 0 } = options
  checkOption('peak', peak, 0)
  checkSteps({ warmup })
  return (step) => {
    checkOption('step', step, 0)
    // the first step is not without effect, and the one behind the warm-up has the peak
    return step < warmup ? (peak * (step + 1)) / (warmup + 1) : peak
  }
}

/**
 * A linear warm-up, then half a cosine down to `minimum` (Loshchilov & Hutter, 2017).
 *
 * @throws ERR_TSR_ARGUMENT when an option is out of range, or none that there is
 *
 * @example
 * const schedule = warmupCosine({ peak: 3e-4, warmup: 100, total: 2000, minimum: 3e-5 })
 * for (let step = 0; step < 2000; step++) {
 *   optimizer.learningRate = schedule(step)
 * }
 */
export function warmupCosine(options: WarmupCosineOptions): LearningRateSchedule {
  refuseUnknown(options, Object.keys(COSINE))
  const { total, warmup = 0 } = options
  checkSteps({ total })
  return warmupStableDecay({ ...options, decay: Math.max(0, total - warmup), shape: 'cosine' })
}

/**
 * A linear warm-up, a long time at `peak`, and a short fall to `minimum` (WSD; Hu et al., "MiniCPM",
 * 2024): training can go on from before the fall without a new plan.
 *
 * @throws ERR_TSR_ARGUMENT when an option is out of range, or none that there is
 *
 * @example
 * warmupStableDecay({ peak: 3e-4, warmup: 100, total: 2000, decay: 400 })
 */
export function warmupStableDecay(options: WarmupStableDecayOptions): LearningRateSchedule {
  refuseUnknown(options, Object.keys(STABLE))
  const { peak, warmup = 0, total, decay, minimum = 0, shape = 'linear' } = options
  const rise = constantRate({ peak, warmup })
  checkSteps({ total, decay })
  checkOption('minimum', minimum, 0)
  const start = total - decay
  if (start < warmup) {
    const value = `${String(warmup)} steps of warm-up and ${String(decay)} of decay`
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: 'total',
      value,
      expected: `at most the ${String(total)} steps there are`,
    })
  }
  if (!Object.hasOwn(shapes, shape)) {
    const expected = Object.keys(shapes).join(', ')
    throw tsrError('ERR_TSR_ARGUMENT', { name: 'shape', value: shape, expected })
  }
  return (step) => {
    const rate = rise(step)
    if (step >= total) return minimum
    if (step <= start) return rate
    return minimum + (peak - minimum) * shapes[shape]((step - start) / decay)
  }
}

function checkSteps(options: Readonly<Record<string, number>>): void {
  for (const [name, value] of Object.entries(options)) {
    if (Number.isSafeInteger(value) && value >= 0) continue
    throw tsrError('ERR_TSR_ARGUMENT', { name, value, expected: 'a number of steps, 0 or more' })
  }
}
