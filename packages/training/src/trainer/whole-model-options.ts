import { anything, count, declareOptions, flag, having } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import type { SpanRecorder } from '@tsrun/telemetry'
import type { Loss } from '../nn/loss.ts'
import { clipRules, type ClipOptions } from '../optim/clip.ts'
import type { Optimizer } from '../optim/optimizer.ts'

export interface WholeModelOptions {
  /** Updates the parameters in `step`. */
  readonly optimizer?: Optimizer
  /** The loss, as the sum or the mean over the examples; default `summedCrossEntropy`. */
  readonly loss?: Loss
  /** `step` scales the gradients down to this norm if theirs is larger: see `clipGradients`. */
  readonly clip?: Omit<ClipOptions, 'pipeline' | 'shard'>
  /**
   * The number of parts of a batch that go forward and backward one after the other; their gradients
   * are summed (gradient accumulation). A smaller batch has as many as it has examples. Default 1.
   */
  readonly accumulate?: number
  /** Keeps only the inputs of the model's `layers` for the backward pass; default false. */
  readonly recompute?: boolean
  /** The ranks that share the layers of the model: see `parallelize`. */
  readonly tensor?: ProcessGroup
  /** Records forward and backward passes and the optimizer as spans. */
  readonly recorder?: SpanRecorder
}

/** @throws ERR_TSR_ARGUMENT */
export const readWholeModelOptions = declareOptions({
  optimizer: having<Optimizer>(
    ['step'],
    'an optimizer, for example new SGD({ learningRate: 0.1 })',
  ).optional(),
  loss: anything<Loss>(),
  clip: anything<NonNullable<WholeModelOptions['clip']>>(),
  accumulate: count({ from: 1 }).default(1),
  recompute: flag().default(false),
  tensor: anything<ProcessGroup>(),
  recorder: anything<SpanRecorder>(),
})

/** @throws ERR_TSR_ARGUMENT */
export const checkClip: (clip: NonNullable<WholeModelOptions['clip']>) => unknown = declareOptions(
  clipRules,
  'clip',
)
