import { argumentError, choice, count, declareOptions, finite } from '@tsrun/core'
import { tensorFrom, writeTo } from '../backend/host-memory.ts'
import { replaceValue, type Parameter } from '../model/parameter.ts'
import type { Evaluation } from '../parallel/pipeline/options.ts'
import type { Trainer, TrainerStep } from './trainer.ts'

/** The argument of `onStep`. */
export interface StepInfo extends TrainerStep {
  /** The number of completed steps, at least 1. */
  readonly step: number
  readonly epoch: number
  readonly learningRate: number | undefined
}

/** The argument of `onEvaluate`. */
export interface EvaluationInfo extends Evaluation {
  readonly step: number
  /** Whether the loss of this evaluation is the smallest so far. */
  readonly isBest: boolean
}

/**
 * A callback of `fit`, called on all ranks with the same figures. If a method returns `'stop'` on any
 * rank, training ends on all ranks. Checkpoints do not contain the state of callbacks.
 */
export interface FitCallback {
  /** Whether the callback needs evaluations. If so, `fit` throws without `evaluate`. Default false. */
  readonly needsEvaluations?: boolean
  onStep?(info: StepInfo, run: Trainer): unknown
  onEvaluate?(info: EvaluationInfo, run: Trainer): unknown
  onSave?(info: { readonly step: number; readonly path: string }, run: Trainer): unknown
  onEnd?(info: { readonly step: number; readonly reason: string }, run: Trainer): unknown
}

const methods = ['onStep', 'onEvaluate', 'onSave', 'onEnd']

/** @throws ERR_TSR_ARGUMENT when the callback has a method `on...` that `fit` would never call */
export function checkCallback(callback: FitCallback): void {
  for (const name in callback) {
    if (!/^on/i.test(name) || methods.includes(name)) continue
    throw argumentError('a method of a callback', name, methods.join(', '))
  }
}

const readStopping = declareOptions({
  patience: count({ from: 1 }).default(3),
  minDelta: finite({ from: 0 }).default(0),
  metric: choice('loss', 'accuracy').default('loss'),
})

/** Options of `earlyStopping`. */
export interface EarlyStoppingOptions {
  /** Training ends after this number of evaluations without an improvement; default 3. */
  readonly patience?: number
  /** The smallest change of the metric that counts as an improvement; default 0. */
  readonly minDelta?: number
  /** The metric to watch; default `loss`. */
  readonly metric?: 'loss' | 'accuracy'
}

/**
 * Returns a callback that ends the training when the metric has not improved in `patience` evaluations.
 *
 * @throws ERR_TSR_ARGUMENT; also in the first evaluation if `metric` is an accuracy of NaN
 */
export function earlyStopping(options: EarlyStoppingOptions = {}): FitCallback {
  const { patience, minDelta, metric } = readStopping(options)
  let best = Infinity
  let waited = 0
  return {
    needsEvaluations: true,
    onEvaluate(info) {
      if (metric === 'accuracy' && Number.isNaN(info.accuracy)) {
        throw argumentError(
          'metric of earlyStopping',
          'accuracy, which is not a number here',
          "'loss', unless labels are classes (int32) or the loss counts right answers",
        )
      }
      const value = metric === 'loss' ? info.loss : -info.accuracy
      if (value < best - minDelta) {
        best = value
        waited = 0
        return undefined
      }
      waited++
      return waited >= patience ? 'stop' : undefined
    },
  }
}

const readAverage = declareOptions({ decay: finite({ from: 0, to: 1 }).default(0.999) })

/** A callback that averages the parameters over the steps; see `movingAverage`. */
export interface MovingAverage extends FitCallback {
  /**
   * Runs `part` with the averages as the parameter values, then restores the parameters.
   *
   * @throws ERR_TSR_ARGUMENT before the first step
   */
  during<T>(run: Trainer, part: () => Promise<T>): Promise<T>
}

/**
 * Returns a callback that keeps an exponential moving average (EMA) of the parameters. After each step,
 * average = decay average + (1 - decay) value. The average starts with the values after the first step.
 *
 * @example
 * const average = movingAverage({ decay: 0.99 })
 * await run.fit(data, { epochs: 3, callbacks: [average] })
 * const { accuracy } = await average.during(run, () => run.evaluate(test))
 *
 * @throws ERR_TSR_ARGUMENT; also from the first step with `zero: 3`, where no rank has whole parameters
 */
export function movingAverage(options: { readonly decay?: number } = {}): MovingAverage {
  const { decay } = readAverage(options)
  let averages: Float32Array[] | undefined
  return {
    async onStep(_info, run) {
      if (run.isSharded) {
        throw argumentError(
          'movingAverage',
          'used with zero: 3',
          'a layout in which each rank has its parameters, with zero at most 2',
        )
      }
      const now = await valuesOf(run.parameters)
      for (const [k, average] of (averages ?? []).entries()) {
        for (let i = 0; i < average.length; i++) {
          average[i] = decay * average[i]! + (1 - decay) * now[k]![i]!
        }
      }
      averages ??= now
    },
    async during(run, part) {
      if (averages === undefined) {
        throw argumentError('during', 'no average', 'at least one step before')
      }
      const kept = await valuesOf(run.parameters)
      setValues(run.parameters, averages)
      try {
        return await part()
      } finally {
        setValues(run.parameters, kept)
      }
    },
  }
}

export async function valuesOf(parameters: readonly Parameter[]): Promise<Float32Array[]> {
  const values: Float32Array[] = []
  for (const { value } of parameters) {
    const copy = new Float32Array(value.size)
    await writeTo(value, copy)
    values.push(copy)
  }
  return values
}

export function setValues(parameters: readonly Parameter[], values: readonly Float32Array[]): void {
  for (const [i, parameter] of parameters.entries()) {
    replaceValue(parameter, tensorFrom(values[i]!, parameter.shape))
  }
}

const readFinder = declareOptions({
  from: finite({ above: 0 }).default(1e-6),
  to: finite({ above: 0 }).default(1),
  steps: count({ from: 2 }).default(100),
})

/** Options of `findRate`. */
export interface FindRateOptions {
  /** The first learning rate; default 1e-6. */
  readonly from?: number
  /** The last learning rate; default 1. */
  readonly to?: number
  /** The number of steps; default 100. Each step multiplies the rate by the same factor. */
  readonly steps?: number
}

/** The result of `findRate`. */
export interface FoundRate {
  /** The rate to start with: a tenth of the rate at which the loss falls fastest, but at least `from`. */
  readonly suggestion: number
  /** The smoothed loss at each learning rate. The curve ends where the loss is four times the smallest. */
  readonly curve: readonly { readonly rate: number; readonly loss: number }[]
}

/**
 * Tries learning rates from small to large, with one step each (Smith, "Cyclical Learning Rates", 2017).
 * Then restores the parameters, the optimizer and the number of steps.
 *
 * @throws ERR_TSR_ARGUMENT without an optimizer, with a schedule of learning rates, and with `zero: 3`
 */
export async function findRate(
  run: Trainer,
  batchAt: (step: number) => Parameters<Trainer['step']>[0],
  options: FindRateOptions = {},
): Promise<FoundRate> {
  const { from, to, steps } = readFinder(options)
  return await run.rollBackAfter(async (optimizer) => {
    const curve: { rate: number; loss: number }[] = []
    let [smooth, smallest] = [0, Infinity]
    for (let step = 0; step < steps; step++) {
      const rate = from * (to / from) ** (step / (steps - 1))
      optimizer.learningRate = rate
      const { loss } = await run.step(batchAt(step))
      smooth = 0.9 * smooth + 0.1 * loss
      // Correct the moving average for its start at zero.
      const value = smooth / (1 - 0.9 ** (step + 1))
      if (!Number.isFinite(value) || value > 4 * smallest) break
      smallest = Math.min(smallest, value)
      curve.push({ rate, loss: value })
    }
    return { suggestion: Math.max(from, steepest(curve) / 10), curve }
  })
}

function steepest(curve: FoundRate['curve']): number {
  let [best, slope] = [curve[0]?.rate ?? NaN, 0]
  for (let i = 1; i < curve.length; i++) {
    const change = curve[i]!.loss - curve[i - 1]!.loss
    if (change >= slope) continue
    slope = change
    best = curve[i]!.rate
  }
  return best
}
