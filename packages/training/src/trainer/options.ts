import {
  anything,
  callback,
  choice,
  count,
  declareOptions,
  having,
  type Complete,
} from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import type { SpanRecorder } from '@tsrun/distributed/record'
import { namePatterns, type NamePatterns } from '../model/name-patterns.ts'
import type { Loss } from '../nn/loss.ts'
import { clipRules, type ClipOptions } from '../optim/clip.ts'
import type { Optimizer } from '../optim/optimizer.ts'
import type { LearningRateSchedule } from '../optim/schedules.ts'
import type { DataParallelOptions } from '../parallel/gradients/options.ts'
import type { PipelineOptions } from '../parallel/pipeline/options.ts'
import { recomputeRule, type Recompute } from '../parallel/recipe.ts'
import type { ParallelPlan } from '../parallel/tensor/parallelize.ts'
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

/** Options of `trainer`. */
export interface TrainerOptions extends GradientOptions, StageOptions {
  /**
   * How the ranks divide the training: the size of each axis (one may be -1, for all remaining ranks), a
   * mesh, or a group whose ranks are replicas. Default `{ dp: -1 }` over the default group, which is
   * initialized if necessary.
   */
  readonly mesh?: MeshShape | AnyMesh | ProcessGroup
  /** The optimizer that updates the parameters in each training step. */
  readonly optimizer?: Optimizer
  /** The learning rate of the optimizer at each step; default: constant. */
  readonly learningRate?: LearningRateSchedule
  /**
   * The loss, a mean or a sum over the examples. Default: cross-entropy, or its vocabulary parallel form
   * if `plan` shards `lm_head`.
   */
  readonly loss?: Loss
  /** Clips gradients: scales them down so that the norm over the whole model is at most this value. */
  readonly clip?: number | Pick<ClipOptions, 'maxNorm'>
  /**
   * The ZeRO level. 1: ranks shard the optimizer state. 2: also the gradients. 3: also the parameters.
   * Default 0.
   */
  readonly zero?: 0 | ZeroStage
  /** The tensor parallel plan: how the ranks of `tp` shard each layer, for example `gptPlan()`. */
  readonly plan?: ParallelPlan
  /**
   * Gradient accumulation: the number of parts of a batch whose gradients are summed before averaging;
   * default 1. With a pipeline, use `microbatches` instead.
   */
  readonly accumulate?: number
  /**
   * Whether to recompute activations in the backward pass instead of keeping them (activation
   * checkpointing), or in which layers: names, patterns of names, or a predicate. Default false.
   */
  readonly recompute?: Recompute
  /** The parameters that are not trained: names, patterns of names, or a predicate. */
  readonly frozen?: NamePatterns
  /**
   * Records this rank's activity in a step as spans: passes, copies to and from buffers, group
   * operations, waiting, and the optimizer. Default: the recorder set by `group.recordSpans`, if any.
   */
  readonly recorder?: SpanRecorder
}

const rules = {
  mesh: anything<NonNullable<TrainerOptions['mesh']>>(),
  optimizer: having<Optimizer>(
    ['step'],
    'an optimizer, for example new Adam({ learningRate: 0.001 })',
  ).optional(),
  learningRate: callback<LearningRateSchedule>(
    'a function of the step, for example warmupCosine(...); a constant rate belongs to the optimizer',
  ).optional(),
  loss: anything<Loss>(),
  clip: anything<NonNullable<TrainerOptions['clip']>>(),
  zero: choice(0, 1, 2, 3).default(0),
  plan: anything<ParallelPlan>(),
  accumulate: count({ from: 1 }).default(1),
  recompute: recomputeRule.default(false),
  frozen: namePatterns.optional(),
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

const checkClip = declareOptions({ maxNorm: clipRules.maxNorm }, 'clip')

/** Returns the option `clip` as an object. @throws ERR_TSR_ARGUMENT */
export function clipOf({ clip }: CheckedOptions): { maxNorm: number } | undefined {
  if (clip === undefined) return undefined
  return checkClip(typeof clip === 'object' ? clip : { maxNorm: clip })
}

/** Returns the options that are not undefined, so that the called function applies its own defaults. */
export function given<T extends object>(options: T): { [K in keyof T]: NonNullable<T[K]> } {
  const entries = Object.entries(options).filter(([, value]) => value !== undefined)
  return Object.fromEntries(entries) as { [K in keyof T]: NonNullable<T[K]> }
}
