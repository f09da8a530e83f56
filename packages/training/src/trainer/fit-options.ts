import { anything, argumentError, count, declareOptions, filled, flag, where } from '@tsrun/core'
import type { MetricLog } from '../metrics/metric-log.ts'
import type { Evaluation } from '../parallel/pipeline/options.ts'
import { checkCallback, type FitCallback } from './callbacks.ts'
import { isIterable, type EvaluationData, type FitData } from './fit-data.ts'

/** Options of `Trainer.fit`. */
export interface FitOptions {
  /**
   * The number of passes over the data in this call; default 1, or unlimited with `steps`. The rest of a
   * partly consumed epoch counts as one. After a resume, epochs before the resume count too.
   */
  readonly epochs?: number
  /** The number of steps of this call. After a resume, steps before the resume count too. */
  readonly steps?: number
  /** For a data set: the number of examples in the batch of all replicas together. Required. */
  readonly batch?: number
  /** For a data set: the seed of the order of the examples; default 0. */
  readonly seed?: number
  readonly evaluate?: EvaluateOptions
  readonly save?: SavingOptions
  /**
   * `auto`: resumes from the newest checkpoint in `save.directory`, if any. `false`: starts from the
   * beginning; existing checkpoints remain until `keep` removes them. Default: starts from the beginning,
   * but throws if the directory has checkpoints of later steps.
   */
  readonly resume?: 'auto' | false
  /** The outputs to which rank 0 writes metrics: `tensorBoard(folder)`, `csv(file)`, `jsonl(file)`. */
  readonly log?: readonly MetricLog[]
  readonly callbacks?: readonly FitCallback[]
  /** Whether rank 0 prints progress; default true. */
  readonly progress?: boolean
  /** The unit of the displayed speed, and the number of units per example. For texts: `{ tokens: 64 }`. */
  readonly unit?: { readonly tokens: number }
  /** Floating-point operations per example, forward and backward, for the GFLOP/s of the progress. */
  readonly flops?: number
}

/** Options for the evaluations during `fit`. */
export interface EvaluateOptions {
  /** A data set, batches of this replica, or a function that returns new ones for each evaluation. */
  readonly data: EvaluationData
  /** The number of steps between evaluations; default: one epoch. `fit` also evaluates at the end. */
  readonly every?: number
  /** For a data set: the number of examples in the batch of all replicas together; default 1,000. */
  readonly batch?: number
}

/** Options for the checkpoints that `fit` saves. */
export interface SavingOptions {
  readonly directory: string
  /** The number of steps between checkpoints; default: saves only at the end. */
  readonly every?: number
  /** The number of newest checkpoints to keep; default: all. */
  readonly keep?: number
  /** Whether to save to `<directory>/best` if an evaluation has the smallest loss so far; default false. */
  readonly best?: boolean
  /** Whether saving throws if a value is NaN or infinite; default true. See `SaveOptions`. */
  readonly finite?: boolean
}

/** The reason why `fit` ended; see `FitResult`. */
export type FitEnd = 'complete' | 'callback' | 'SIGTERM' | 'SIGUSR1' | 'SIGINT'

/** The result of `fit`, the same on all ranks. */
export interface FitResult {
  /** The number of completed steps, including those before a resume. */
  readonly steps: number
  /** The loss of each step of this call. */
  readonly losses: readonly number[]
  /** The evaluations of this call, each with the number of completed steps. */
  readonly evaluations: readonly (Evaluation & { readonly step: number })[]
  /**
   * `complete`: all epochs or steps are done. `callback`: a callback stopped the training. `SIGTERM`,
   * `SIGUSR1`, `SIGINT`: a rank received this signal, and `fit` has saved a checkpoint if `save` is set.
   */
  readonly end: FitEnd
}

const every = count({ from: 1 })
export const batchRule = every.default(1000)

const readOptions = declareOptions({
  epochs: every.optional(),
  steps: every.optional(),
  batch: every.optional(),
  seed: anything<number>(),
  evaluate: anything<EvaluateOptions>(),
  save: anything<SavingOptions>(),
  resume: where<'auto' | false>(
    (value) => value === 'auto' || value === false,
    "'auto' or false",
  ).optional(),
  log: where<readonly MetricLog[]>(Array.isArray, 'a list, for example [jsonl(file)]').default([]),
  callbacks: where<readonly FitCallback[]>(Array.isArray, 'a list of callbacks').default([]),
  progress: flag.default(true),
  unit: anything<{ readonly tokens: number }>(),
  flops: anything<number>(),
})

const readEvaluate = declareOptions(
  {
    data: where<EvaluateOptions['data']>(
      (value) => typeof value === 'object' || typeof value === 'function',
      'a data set, batches, or a function that makes them',
    ),
    every: every.optional(),
    batch: batchRule,
  },
  'evaluate',
)

const readSave = declareOptions(
  {
    directory: filled('the path of a folder'),
    every: every.optional(),
    keep: every.default(Infinity),
    best: flag.default(false),
    finite: flag.default(true),
  },
  'save',
)

export type CheckedFitOptions = ReturnType<typeof readFitOptions>

/** @throws ERR_TSR_ARGUMENT */
export function readFitOptions(given: FitOptions, data: FitData) {
  const options = readOptions(given)
  const evaluating = options.evaluate && readEvaluate(options.evaluate)
  const saving = options.save && readSave(options.save)
  options.callbacks.forEach(checkCallback)
  const epochs = options.epochs ?? (options.steps === undefined ? 1 : Infinity)
  const steps = options.steps ?? Infinity
  if (typeof data === 'function' && steps === Infinity) {
    throw argumentError('steps', 'undefined', 'a number, as a function of the step has no epochs')
  }
  checkEvaluation(options, evaluating, saving)
  return { ...options, evaluating, saving, epochs, steps }
}

/** Rejects options and callbacks that need `evaluate`, and evaluation data that can be read only once. */
function checkEvaluation(
  { callbacks }: Pick<FitOptions, 'callbacks'>,
  evaluating: { readonly data: EvaluateOptions['data'] } | undefined,
  saving: { readonly best: boolean } | undefined,
): void {
  if (evaluating !== undefined) {
    const { data } = evaluating
    if (typeof data !== 'object' || !isIterable(data)) return
    if (typeof (data as { readonly next?: unknown }).next !== 'function') return
    throw argumentError(
      'evaluate.data',
      'a generator, which can be used only once',
      'a function that makes one for each evaluation',
    )
  }
  const isWaiting = callbacks?.some(({ needsEvaluations }) => needsEvaluations) === true
  if (saving?.best !== true && !isWaiting) return
  const waiting = saving?.best === true ? 'save.best' : 'a callback'
  throw argumentError('evaluate', 'undefined', `{ data }, which ${waiting} needs`)
}
