import {
  anything,
  choice,
  count,
  declareOptions,
  flag,
  having,
  where,
  type Complete,
} from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import type { SpanRecorder } from '@tsrun/distributed/record'
import { summedCrossEntropy } from '../../nn/cross-entropy.ts'
import type { Loss } from '../../nn/loss.ts'
import { meanOf, type Tally } from '../../nn/part-loss.ts'
import { clipRules, type ClipOptions } from '../../optim/clip.ts'
import type { Optimizer } from '../../optim/optimizer.ts'
import type { Tensor } from '../../tfjs/tfjs.ts'
import type { OwnTotals } from '../gradients/averaging.ts'
import type { ScheduleChoice } from './plan.ts'
import { stagesPerRank } from './schedule/orders.ts'
import type { Split } from './split.ts'

/** How a model is trained, in stages or as a whole. */
export interface ModelOptions {
  /** Updates the parameters in `step`. */
  readonly optimizer?: Optimizer
  /** A mean or a sum; default `crossEntropy`. A mean that is not over the examples needs `Loss.count`. */
  readonly loss?: Loss
  /**
   * `step` scales the gradients of the whole model down to this norm if their norm is larger: see
   * `clipGradients`. Set `tensor` if layers are shared. Default: gradients are not clipped.
   */
  readonly clip?: Omit<ClipOptions, 'pipeline' | 'shard'>
  /**
   * Keeps only the input of a stage, or of each layer of a whole model, until the backward pass of a
   * micro-batch, which first repeats the forward pass: less memory for a third more time. The gradients
   * are bitwise equal. Default false.
   */
  readonly recompute?: boolean
  /**
   * What the first step with examples does if no rank used a trained parameter: throw (`error`, the
   * default), as `forward` may have forgotten it, or nothing (`zeros`). Later steps leave such
   * parameters as they are.
   */
  readonly unused?: 'error' | 'zeros'
  /**
   * Records spans: see `Pipeline.recorder`. Default: the group's recorder (`group.recordSpans`) when
   * the pipeline is made, or else a new one; for a whole model none.
   */
  readonly recorder?: SpanRecorder
}

export interface PipelineOptions extends ModelOptions {
  /** A name, or your own lists of actions: `parseSchedule(text)`, `{ actions }`. Default `1f1b`. */
  readonly schedule?: ScheduleChoice
  /** The number of stages per rank with `interleaved` and `looped`; default 2. */
  readonly chunks?: number
  /**
   * The number of layers of each stage, or the cost of each layer (see `measureCosts`). With costs, the
   * most expensive stage is as cheap as possible. Default: as even as possible.
   */
  readonly split?: Split
  /**
   * The number of parts of a batch; default 8, or the number in your own lists. A small batch has fewer.
   */
  readonly microbatches?: number
}

export interface WholeModelOptions extends ModelOptions {
  /**
   * The number of parts of a batch that go forward and backward one after the other; their gradients
   * are summed (gradient accumulation). A smaller batch has one part per example. Default 1.
   */
  readonly accumulate?: number
  /** The ranks that share the layers of the model: see `parallelize`. */
  readonly tensor?: ProcessGroup
}

export interface StepResult {
  /** The mean over the whole batch of this replica, the same on all ranks of its pipeline. */
  readonly loss: number
  /** The norm of all gradients before they were scaled, from `step` with the option `clip`. */
  readonly norm?: number
  /** Milliseconds that `step` waited for averaged gradients after the backward passes. */
  readonly waited?: number
  /** The sums of `step`: over all replicas with `reduction: 'token'`, otherwise of this replica. */
  readonly totals?: OwnTotals
  /** The most micro-batches whose activations this rank held at one time. */
  readonly peakInFlight: number
}

export interface GradientResult extends StepResult {
  /** The gradients of the mean loss that no listener took, by parameter name; dispose them. */
  readonly gradients: Map<string, Tensor>
}

export interface Evaluation {
  /** The mean over the labels that count: NaN without examples, 0 if no label counts. */
  readonly loss: number
  /** The fraction of right answers among those that count, 0 to 1; the same on every rank. */
  readonly accuracy: number
  /** The accuracy times the number of examples. */
  readonly correct: number
  readonly examples: number
}

export function evaluationOf(tally: Tally): Evaluation {
  const { correct, of, examples } = tally
  const accuracy = correct / of
  return {
    loss: meanOf(tally),
    accuracy,
    correct: examples === 0 ? 0 : accuracy * examples,
    examples,
  }
}

const modelRules = {
  optimizer: having<Optimizer>(
    ['step'],
    'an optimizer, for example new SGD({ learningRate: 0.1 })',
  ).optional(),
  loss: where<Loss>(
    (value) => typeof value === 'function',
    'a function of the outputs and the labels, for example crossEntropy',
  ).default(summedCrossEntropy),
  clip: anything<NonNullable<ModelOptions['clip']>>(),
  recompute: flag.default(false),
  unused: choice('error', 'zeros').default('error'),
  recorder: anything<SpanRecorder>(),
}

const rules = {
  ...modelRules,
  schedule: where<ScheduleChoice>(
    (value) => typeof value === 'string' || Array.isArray((value as GivenChoice)?.actions),
    'a name, or lists of actions, for example parseSchedule(text)',
  ).default('1f1b'),
  chunks: anything<number>(),
  split: anything<Split>(),
  microbatches: anything<number>(),
}

const wholeRules = {
  ...modelRules,
  accumulate: count({ from: 1 }).default(1),
  tensor: anything<ProcessGroup>(),
}

type GivenChoice = { readonly actions?: unknown } | null | undefined

const readOptions = declareOptions(rules)
const readWholeOptions = declareOptions(wholeRules)

const checkClip = declareOptions(clipRules, 'clip')

/** Complete options of any model. */
export type CheckedModelOptions = Complete<typeof modelRules>

/** Complete options. */
export interface CheckedOptions extends Omit<Complete<typeof rules>, 'chunks'> {
  /** The number of stages per rank, with any schedule. */
  readonly chunks: number
}

/** @throws ERR_TSR_ARGUMENT */
export function readWholeModelOptions(given: WholeModelOptions): Complete<typeof wholeRules> {
  const options = readWholeOptions(given)
  if (options.clip !== undefined) checkClip(options.clip)
  return options
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
