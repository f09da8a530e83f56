import { anything, declareOptions, flag, having, where, type Complete } from '@tsrun/core'
import type { SpanRecorder } from '@tsrun/telemetry'
import { summedCrossEntropy } from '../../nn/cross-entropy.ts'
import type { Loss } from '../../nn/loss.ts'
import { clipRules, type ClipOptions } from '../../optim/clip.ts'
import type { Optimizer } from '../../optim/optimizer.ts'
import type { Tensor } from '../../tfjs/tfjs.ts'
import type { ScheduleChoice } from './plan.ts'
import { stagesPerRank } from './schedule/orders.ts'
import type { Split } from './split.ts'

export interface PipelineOptions {
  /** A name, or your own lists of actions: `parseSchedule(text)`, `{ actions }`. Default `1f1b`. */
  readonly schedule?: ScheduleChoice
  /** The number of stages per rank with `interleaved` and `looped`; default 2. */
  readonly chunks?: number
  /**
   * The number of layers of each stage, or the cost of each layer (see `measureCosts`), with which the
   * most expensive stage is as cheap as possible. Default: as even as possible.
   */
  readonly split?: Split
  /**
   * The number of parts of a batch; default 8, or that of your own lists. A batch with fewer examples
   * has fewer parts.
   */
  readonly microbatches?: number
  /** Updates the parameters in `step`. */
  readonly optimizer?: Optimizer
  /**
   * `step` scales the gradients of the whole model down to this norm if theirs is larger: see
   * `clipGradients`. Set `tensor` if layers are shared. Default: gradients are not clipped.
   */
  readonly clip?: Omit<ClipOptions, 'pipeline' | 'shard'>
  /**
   * Keeps only the input of a stage between the forward and the backward pass of a micro-batch, and runs
   * the forward pass again before the backward pass: less memory for a third more time. The gradients
   * are the same bits. Default false.
   */
  readonly recompute?: boolean
  /**
   * The mean or the sum over the examples; default `crossEntropy`. One that does not say which (see
   * `Loss.reduction`) is tried once, on the first micro-batch.
   */
  readonly loss?: Loss
  /**
   * Records spans: see `Pipeline.recorder`. Default: the one that the group records with
   * (`group.recordSpans`) when the pipeline is made, or else a new one.
   */
  readonly recorder?: SpanRecorder
}

export interface StepResult {
  /** The mean over the whole batch of this pipeline, the same on all its ranks. */
  readonly loss: number
  /** The norm of all gradients before they were scaled, from `step` with the option `clip`. */
  readonly norm?: number
  /** Milliseconds that `step` waited for averaged gradients after the backward passes. */
  readonly waited?: number
  /** Of all replicas, where they are known: from `step` of a `WholeModel`, with `reduction: 'token'`. */
  readonly totals?: { readonly count: number; readonly loss: number }
  /** The most micro-batches whose activations this rank held at one time. */
  readonly peakInFlight: number
}

export interface GradientResult extends StepResult {
  /** By parameter name, the gradients of the mean loss that no listener got; dispose them. */
  readonly gradients: Map<string, Tensor>
}

export interface Evaluation {
  readonly loss: number
  /** The fraction of right answers, 0 to 1; the same on every rank. */
  readonly accuracy: number
  readonly correct: number
  readonly examples: number
}

/** Of a batch without examples, which some replicas may have at the end of an epoch. */
export const noExamples: Evaluation = { loss: NaN, accuracy: NaN, correct: 0, examples: 0 }

const rules = {
  schedule: where<ScheduleChoice>(
    (value) => typeof value === 'string' || Array.isArray((value as GivenChoice)?.actions),
    'a name, or lists of actions, for example parseSchedule(text)',
  ).default('1f1b'),
  chunks: anything<number>(),
  split: anything<Split>(),
  microbatches: anything<number>(),
  optimizer: having<Optimizer>(
    ['step'],
    'an optimizer, for example new SGD({ learningRate: 0.1 })',
  ).optional(),
  clip: anything<NonNullable<PipelineOptions['clip']>>(),
  recompute: flag().default(false),
  loss: where<Loss>(
    (value) => typeof value === 'function',
    'a function of the outputs and the labels, for example crossEntropy',
  ).default(summedCrossEntropy),
  recorder: anything<SpanRecorder>(),
}

type GivenChoice = { readonly actions?: unknown } | null | undefined

const readOptions = declareOptions(rules)

const checkClip = declareOptions(clipRules, 'clip')

/** Complete options. */
export interface CheckedOptions extends Omit<Complete<typeof rules>, 'chunks'> {
  /** The number of stages per rank, with any schedule. */
  readonly chunks: number
}

/** @throws ERR_TSR_ARGUMENT */
export function readPipelineOptions(given: PipelineOptions): CheckedOptions {
  const options = readOptions(given)
  if (options.clip !== undefined) checkClip(options.clip)
  const each = stagesPerRank(options.schedule)
  const chunks = where<number>(
    (value) =>
      Number.isSafeInteger(value) &&
      (each === 'any' ? Number(value) >= 1 : each === 2 && value === 2),
    each === 2
      ? '2, as this schedule places two stages on each rank'
      : "a whole number from 1, with schedule: 'interleaved', 'looped' or 'interleaved-zb'",
  ).default(each === 1 ? 1 : 2)
  return { ...options, chunks: chunks.check('chunks', options.chunks) }
}
