import { argumentError, choice, count, declareOptions, finite } from '@tsrun/core'
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
  /**
   * Whether the callback needs evaluations. `fit` throws if evaluation is not configured. Default false.
   */
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
