import { refuseUnknown, shown, tsrError } from '@tsrun/core'
import type { SpanRecorder } from '@tsrun/telemetry'
import { checkFlag } from '../../arguments.ts'
import type { Tensor } from '../../tfjs/tfjs.ts'
import type { Loss } from '../../nn/loss.ts'
import { clipRules, type ClipOptions } from '../../optim/clip.ts'
import type { Optimizer } from '../../optim/optimizer.ts'
import type { ScheduleChoice } from './plan.ts'
import { takesChunks } from './schedule/orders.ts'
import type { Split } from './split-layers.ts'

export interface PipelineOptions {
  /** A name, or lists of actions of your own: `parseSchedule(text)`, `{ actions }`. Default `1f1b`. */
  readonly schedule?: ScheduleChoice
  /** Stages of each rank with `interleaved` and `looped`; default 2. */
  readonly chunks?: number
  /**
   * How many layers each stage takes, or what each layer costs (see `measureCosts`): then the largest
   * stage is as small as can be. Default: as even as can be.
   */
  readonly split?: Split
  /**
   * Parts that a batch is cut into; default 8, or those of the lists of your own. A batch of fewer
   * examples makes fewer.
   */
  readonly microbatches?: number
  /** Changes the parameters in `step`. */
  readonly optimizer?: Optimizer
  /**
   * `step` scales the gradients of the whole model down to this norm where theirs is larger, see
   * `clipGradients`; `tensor` where layers are shared. Default: as they are.
   */
  readonly clip?: Omit<ClipOptions, 'pipeline' | 'shard'>
  /**
   * Keeps of each micro-batch only the input of a stage from its forward to its backward, which runs
   * the forward again: less memory for a third more time; the gradients are the same bits. Default
   * false.
   */
  readonly recompute?: boolean
  /** The *sum* of the losses of a micro-batch's examples; default: `summedCrossEntropy`. */
  readonly loss?: Loss
  /** Where spans go; default: one of its own, see `Pipeline.recorder`. */
  readonly recorder?: SpanRecorder
}

export interface StepResult {
  /** Mean over the whole batch of this pipeline, the same on every rank of it. */
  readonly loss: number
  /** Of all gradients before they were scaled, from `step` with the option `clip`. */
  readonly norm?: number
  /** Most micro-batches whose activations this rank held at once. */
  readonly peakInFlight: number
}

export interface GradientResult extends StepResult {
  /** Those of the mean loss that no listener got, by name of the parameter; yours to dispose. */
  readonly gradients: Map<string, Tensor>
}

export interface Evaluation {
  readonly loss: number
  /** Share of right answers, 0 to 1; the same on every rank. */
  readonly accuracy: number
  readonly correct: number
  readonly examples: number
}

const KNOWN = Object.keys({
  schedule: true,
  chunks: true,
  split: true,
  microbatches: true,
  optimizer: true,
  clip: true,
  recompute: true,
  loss: true,
  recorder: true,
} satisfies Record<keyof PipelineOptions, true>)

const KNOWN_OF_CLIP = Object.keys({
  maxNorm: true,
  norm: true,
  tensor: true,
} satisfies Record<keyof NonNullable<PipelineOptions['clip']>, true>)

/** @returns stages a rank @throws ERR_TSR_ARGUMENT for an option that there is not, or that is none */
export function checkPipelineOptions(options: PipelineOptions): number {
  refuseUnknown(options, KNOWN)
  const { schedule = '1f1b', chunks, optimizer, clip, recompute = false, loss } = options
  if (optimizer !== undefined) checkOptimizer(optimizer)
  if (clip !== undefined) checkClip(clip)
  if (loss !== undefined) checkLoss(loss)
  checkFlag('recompute', recompute)
  checkSchedule(schedule)
  return checkChunks(schedule, chunks)
}

function checkOptimizer(optimizer: Partial<Optimizer> | null): void {
  if (typeof optimizer?.step === 'function') return
  const expected = 'an optimizer, for example new SGD({ learningRate: 0.1 })'
  throw tsrError('ERR_TSR_ARGUMENT', { name: 'optimizer', value: shown(optimizer), expected })
}

function checkClip(clip: unknown): void {
  if (typeof clip !== 'object' || clip === null) {
    const expected = 'an object, for example { maxNorm: 1 }'
    throw tsrError('ERR_TSR_ARGUMENT', { name: 'clip', value: shown(clip), expected })
  }
  refuseUnknown(clip, KNOWN_OF_CLIP)
  const { maxNorm, norm } = clip as Partial<ClipOptions>
  clipRules.maxNorm.check('maxNorm', maxNorm)
  clipRules.norm.check('norm', norm)
}

/** The mean of a micro-batch would be divided again by the size of the batch. */
function checkLoss(loss: unknown): void {
  const isFunction = typeof loss === 'function'
  if (isFunction && (loss as Loss).reduction !== 'mean') return
  const expected = 'a sum over examples, for example summedCrossEntropy'
  const value = isFunction ? 'a mean over examples' : shown(loss)
  throw tsrError('ERR_TSR_ARGUMENT', { name: 'loss', value, expected })
}

function checkSchedule(choice: Partial<Exclude<ScheduleChoice, string>> | string | null): void {
  if (typeof choice === 'string' || Array.isArray(choice?.actions)) return
  const expected = 'a name, or lists of actions, for example parseSchedule(text)'
  throw tsrError('ERR_TSR_ARGUMENT', { name: 'schedule', value: shown(choice), expected })
}

function checkChunks(choice: ScheduleChoice, chunks: number | undefined): number {
  const isChoice = takesChunks(choice)
  const value = chunks ?? (isChoice ? 2 : 1)
  if (Number.isSafeInteger(value) && value >= 1 && (isChoice || chunks === undefined)) return value
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'chunks',
    value,
    expected: "a whole number from 1, with schedule: 'interleaved' or 'looped'",
  })
}
