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
import type { NamePatterns } from '../model/name-patterns.ts'
import type { Loss } from '../nn/loss.ts'
import { clipRules, type ClipOptions } from '../optim/clip.ts'
import type { Optimizer } from '../optim/optimizer.ts'
import type { LearningRateSchedule } from '../optim/schedules.ts'
import type { DataParallelOptions } from '../parallel/gradients/options.ts'
import type { PipelineOptions } from '../parallel/pipeline/options.ts'
import type { ParallelPlan } from '../parallel/tensor/styles.ts'
import type { ZeroStage } from '../parallel/zero/options.ts'
import type { AnyMesh, MeshShape } from './layout.ts'

type GradientOptions = Pick<
  DataParallelOptions,
  'bucketBytes' | 'firstBucketBytes' | 'wire' | 'deterministic'
>

type StageOptions = Pick<
  PipelineOptions,
  'schedule' | 'chunks' | 'split' | 'microbatches' | 'unused'
>

export interface TrainerOptions extends GradientOptions, StageOptions {
  /**
   * How the ranks divide the training: the size of each axis (one may be -1: all remaining ranks), or a
   * mesh, or a group whose ranks are replicas. Default `{ dp: -1 }` over the default group, which is
   * joined if necessary.
   */
  readonly mesh?: MeshShape | AnyMesh | ProcessGroup
  /** Updates the parameters in `step`. */
  readonly optimizer?: Optimizer
  /** Sets the learning rate of the optimizer before each step; default: leaves it unchanged. */
  readonly learningRate?: LearningRateSchedule
  /**
   * A mean or a sum over the examples. Default: cross-entropy; if `plan` divides the scores over tensor
   * parallel ranks, its vocabulary parallel form.
   */
  readonly loss?: Loss
  /** Scales the gradients of the whole model down so that their norm is at most this. */
  readonly clip?: number | Pick<ClipOptions, 'maxNorm' | 'norm'>
  /** Shards training state (ZeRO): 1 optimizer state, 2 also gradients, 3 also parameters. */
  readonly zero?: 0 | ZeroStage
  /** The styles of the layers that the ranks of `tp` share, for example `gptPlan()`. */
  readonly plan?: ParallelPlan
  /**
   * The number of parts of a batch whose gradients are summed before they are averaged (gradient
   * accumulation). For a pipeline: `microbatches`. Default 1.
   */
  readonly accumulate?: number
  /** Recomputes activations in the backward pass instead of keeping them; default false. */
  readonly recompute?: boolean
  /** Parameters that are not trained: names, patterns of names, or a predicate. */
  readonly frozen?: NamePatterns
  /**
   * Records the activity of this rank in a step as spans: passes, copies into and out of buffers,
   * operations of all groups (`group.recordSpans`), waiting and the optimizer. Default: the recorder of
   * the groups, if they have one.
   */
  readonly recorder?: SpanRecorder
}

const rules = {
  mesh: anything<NonNullable<TrainerOptions['mesh']>>(),
  optimizer: having<Optimizer>(
    ['step'],
    'an optimizer, for example new Adam({ learningRate: 0.001 })',
  ).optional(),
  learningRate: where<LearningRateSchedule>(
    (value) => typeof value === 'function',
    'a function of the step, for example warmupCosine(...); a constant rate belongs to the optimizer',
  ).optional(),
  loss: anything<Loss>(),
  clip: anything<NonNullable<TrainerOptions['clip']>>(),
  zero: choice(0, 1, 2, 3).default(0),
  plan: anything<ParallelPlan>(),
  accumulate: count({ from: 1 }).default(1),
  recompute: flag.default(false),
  frozen: anything<NamePatterns>(),
  unused: choice('error', 'zeros').default('error'),
  recorder: anything<SpanRecorder>(),
  bucketBytes: anything<number>(),
  firstBucketBytes: anything<number>(),
  wire: anything<NonNullable<GradientOptions['wire']>>(),
  deterministic: anything<boolean>(),
  schedule: anything<NonNullable<StageOptions['schedule']>>(),
  chunks: anything<number>(),
  split: anything<NonNullable<StageOptions['split']>>(),
  microbatches: anything<number>(),
}

export type CheckedOptions = Complete<typeof rules>

/** @throws ERR_TSR_ARGUMENT */
export const readTrainerOptions = declareOptions(rules)

const checkClip = declareOptions({ maxNorm: clipRules.maxNorm, norm: clipRules.norm }, 'clip')

/** The option `clip` as an object. @throws ERR_TSR_ARGUMENT */
export function clipOf({ clip }: CheckedOptions): { maxNorm: number; norm: number } | undefined {
  if (clip === undefined) return undefined
  return checkClip(typeof clip === 'object' ? clip : { maxNorm: clip })
}

/** Returns the options that are defined, for functions with their own defaults. */
export function given<T extends object>(options: T): { [K in keyof T]: NonNullable<T[K]> } {
  const entries = Object.entries(options).filter(([, value]) => value !== undefined)
  return Object.fromEntries(entries) as { [K in keyof T]: NonNullable<T[K]> }
}
