import {
  anything,
  argumentError,
  choice,
  count,
  declareOptions,
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
import { formatActions } from './schedule/actions.ts'
import { recomputeRule, type Recompute } from '../recipe.ts'
import { stagesPerRank } from './schedule/orders.ts'
import {
  customSchedule,
  schedule,
  type GivenLists,
  type Schedule,
  type ScheduleName,
} from './schedule/schedule.ts'
import type { Split } from './split.ts'

/** Training options of any model, whether or not it is divided into stages. */
export interface ModelOptions {
  /** The optimizer that updates the parameters in `step`. */
  readonly optimizer?: Optimizer
  /**
   * The loss: a mean or a sum over the examples; default `crossEntropy`. A mean over something else
   * requires `Loss.count`.
   */
  readonly loss?: Loss
  /**
   * Gradient clipping in `step`: if the norm of all gradients of the model exceeds a limit, they are
   * scaled down to it. See `clipGradients`. Set `tensor` if ranks share layers. Default: no clipping.
   */
  readonly clip?: Omit<ClipOptions, 'pipeline' | 'shard'>
  /**
   * Whether to recompute activations, or the layers to recompute; default false. With true, only the
   * input of a stage (or of each layer of a whole model) is kept between the passes of a micro-batch.
   * With names, the input of each named layer is kept in place of its activations. The backward pass
   * repeats the forward pass. With all layers, a step takes about a third longer. Gradients stay the
   * same: on wasm and cpu bitwise.
   */
  readonly recompute?: Recompute
  /**
   * What to do if no rank used a trained parameter in the first step with examples. `error` (default)
   * throws, because `forward` may have left the parameter out by mistake. `zeros` ignores it. In later
   * steps, unused parameters stay unchanged.
   */
  readonly unused?: 'error' | 'zeros'
  /**
   * Records spans; see `Pipeline.recorder`. Default: the recorder of the group (`group.recordSpans`), or
   * a new recorder if the group has none. A whole model records nothing by default.
   */
  readonly recorder?: SpanRecorder
}

/** Options of `pipeline`. */
export interface PipelineOptions extends ModelOptions {
  /**
   * The schedule: a name, or custom lists of actions as `parseSchedule(text)` or `{ actions }`.
   * Default `1f1b`.
   */
  readonly schedule?: ScheduleChoice
  /** The number of stages per rank for the schedules `interleaved` and `looped`; default 2. */
  readonly chunks?: number
  /**
   * How to divide the layers: the number of layers of each stage, or the cost of each layer. With
   * costs, the most expensive stage is made as cheap as possible. Default: equal numbers of layers.
   */
  readonly split?: Split
  /**
   * The number of micro-batches per batch. Default: 8, or the number in custom lists of actions. A batch
   * with fewer examples than that has one micro-batch per example.
   */
  readonly microbatches?: number
}

/** Options of `wholeModel`. */
export interface WholeModelOptions extends ModelOptions {
  /**
   * The number of micro-batches that run one after another, with summed gradients (gradient
   * accumulation); default 1. A batch with fewer examples than that has one micro-batch per example.
   */
  readonly accumulate?: number
  /** The tensor parallel group, whose ranks share the layers; see `parallelize`. */
  readonly tensor?: ProcessGroup
}

/** The result of a training step. */
export interface StepResult {
  /** The mean loss over the whole batch of this replica; the same on all ranks of the replica. */
  readonly loss: number
  /** The norm of all gradients before clipping; present if the option `clip` is set. */
  readonly norm?: number
  /** The milliseconds that `step` waited for averaged gradients after the backward passes. */
  readonly waited?: number
  /**
   * The sums of losses, counts and examples in `step`: over all replicas with `reduction: 'token'`,
   * otherwise of this replica.
   */
  readonly totals?: OwnTotals
  /** The largest number of micro-batches whose activations this rank held at one time. */
  readonly peakInFlight: number
}

/** The loss of a step and its gradients, which were not applied. */
export interface GradientResult extends StepResult {
  /**
   * The gradients of the mean loss that were not passed to a listener, by parameter name. The
   * caller disposes them.
   */
  readonly gradients: Map<string, Tensor>
}

/** The loss and accuracy of a model on data that it does not train on. */
export interface Evaluation {
  /**
   * The mean loss over the labels that are not ignored. It is NaN without examples, and 0 if all
   * labels are ignored.
   */
  readonly loss: number
  /**
   * The fraction of correct answers, 0 to 1, among the labels that are not ignored; the same on
   * every rank.
   */
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
  recompute: recomputeRule.default(false),
  unused: choice('error', 'zeros').default('error'),
  recorder: anything<SpanRecorder>(),
}

export const pipelineRules = {
  ...modelRules,
  schedule: where<ScheduleChoice>(
    (value) =>
      typeof value === 'string' ||
      Array.isArray((value as { actions?: unknown } | null | undefined)?.actions),
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

const readOptions = declareOptions(pipelineRules)
const readWholeOptions = declareOptions(wholeRules)

const checkClip = declareOptions(clipRules, 'clip')

export type CheckedModelOptions = Complete<typeof modelRules>

export interface CheckedOptions extends Omit<Complete<typeof pipelineRules>, 'chunks'> {
  /** The number of stages per rank. Some schedules have a fixed number. */
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

/** A schedule: its name, or an object with lists of actions, such as a `Schedule`. */
export type ScheduleChoice = ScheduleName | Schedule | { readonly actions: GivenLists }

export type Plan = ReturnType<typeof planOf>

/**
 * The schedules of one pipeline. Each number of micro-batches has its own schedule, because small batches
 * have fewer micro-batches.
 *
 * @throws ERR_TSR_ARGUMENT when the schedule does not fit the group; ERR_TSR_SCHEDULE when its
 *   actions cannot be executed
 */
export function planOf(
  choice: ScheduleChoice,
  ranks: number,
  options: { readonly microbatches: number | undefined; readonly chunks: number },
) {
  const own = typeof choice === 'string' ? undefined : customSchedule(choice.actions)
  if (own !== undefined) checkFits(own, ranks, options.microbatches)
  const { stages, microbatches } = own ?? {
    stages: ranks * options.chunks,
    microbatches: options.microbatches ?? 8,
  }
  const made = new Map<number, Schedule>(own && [[microbatches, own]])
  const scheduleFor = (count: number) => {
    const known = made.get(count)
    if (known !== undefined) return known
    if (typeof choice !== 'string') {
      throw argumentError(
        'batch.size',
        count,
        `at least ${microbatches}, the micro-batches of the schedule`,
      )
    }
    const next = schedule(choice, { stages, ranks, microbatches: count })
    made.set(count, next)
    return next
  }
  const usual = scheduleFor(microbatches)
  return {
    stages,
    /** The rank of each stage. */
    placement: usual.placement,
    /** The number of micro-batches of a batch that has enough examples. */
    microbatches,

    /** Describes the properties of the schedule that must be the same on all ranks. */
    describe() {
      const parts = `microbatches ${microbatches}`
      if (typeof choice === 'string') {
        return [`schedule ${choice}`, `chunks ${stages / ranks}`, parts]
      }
      const lists = formatActions(usual.actions).trim().split('\n')
      return [
        'schedule of actions',
        parts,
        ...lists.map((list, rank) => `schedule of rank ${rank}: ${list}`),
      ]
    },

    for: scheduleFor,
  }
}

function checkFits(own: Schedule, ranks: number, microbatches: number | undefined) {
  const lists = own.actions.filter((list) => list.length > 0).length
  if (own.actions.length !== ranks || lists !== ranks) {
    throw argumentError(
      'schedule',
      `actions for ${lists} ${lists === 1 ? 'rank' : 'ranks'}`,
      `a list for each of the ${ranks} ranks of the group`,
    )
  }
  if (microbatches === undefined || microbatches === own.microbatches) return
  throw argumentError(
    'microbatches',
    microbatches,
    `${own.microbatches}, as in the schedule, or none`,
  )
}
