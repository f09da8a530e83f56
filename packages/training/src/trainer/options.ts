import { anything, callback, choice, count, declareOptions } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { namePatterns, type NamePatterns } from '../model/name-patterns.ts'
import type { Loss } from '../nn/loss.ts'
import { clipRules, type ClipOptions } from '../optim/clip.ts'
import type { Optimizer } from '../optim/optimizer.ts'
import type { LearningRateSchedule } from '../optim/schedules.ts'
import { gradientRules, type DataParallelOptions } from '../parallel/gradients/options.ts'
import { pipelineRules, type PipelineOptions } from '../parallel/pipeline/options.ts'
import type { Recompute } from '../parallel/recipe.ts'
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
   * The layout of the ranks: the size of each axis (one may be -1, for all remaining ranks), a
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
  /** The ZeRO level. 1 shards the optimizer state, 2 also gradients, 3 also parameters. Default 0. */
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
}

const { bucketBytes, firstBucketBytes, wire, deterministic } = gradientRules
const { optimizer, recompute, unused, schedule, chunks, split, microbatches } = pipelineRules

const rules = {
  bucketBytes,
  firstBucketBytes,
  wire,
  deterministic,
  optimizer,
  recompute,
  unused,
  schedule,
  chunks,
  split,
  microbatches,
  mesh: anything<NonNullable<TrainerOptions['mesh']>>(),
  learningRate: callback<LearningRateSchedule>(
    'a function of the step, for example warmupCosine(...); a constant rate belongs to the optimizer',
  ).optional(),
  loss: anything<Loss>(),
  clip: anything<NonNullable<TrainerOptions['clip']>>(),
  zero: choice(0, 1, 2, 3).default(0),
  plan: anything<ParallelPlan>(),
  accumulate: count({ from: 1 }).default(1),
  frozen: namePatterns.optional(),
}

const readOptions = declareOptions(rules)
const readClip = declareOptions({ maxNorm: clipRules.maxNorm }, 'clip')

export type CheckedOptions = ReturnType<typeof readTrainerOptions>

/** Checks the options, and turns `clip` into an object. */
export function readTrainerOptions(given: TrainerOptions) {
  const { clip, ...options } = readOptions(given)
  if (clip === undefined) return { ...options, clip }
  return { ...options, clip: readClip(typeof clip === 'object' ? clip : { maxNorm: clip }) }
}
