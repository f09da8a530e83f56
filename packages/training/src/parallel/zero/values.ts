import type { Tensor } from '@tensorflow/tfjs-core'
import type { GradientListener, RecordOptions } from '../../autograd/recording.ts'
import type { ShardParameter } from './shard-parameter.ts'

/** A forward pass of a sharded model. */
export interface ShardedRecording {
  /** The output; owned by the recording. */
  readonly value: Tensor
  /**
   * Runs it backward from `dy`, which stays the caller's; at most once. The gradients of parameters go
   * to the ranks that own them.
   *
   * @returns the gradient of the input, the caller's, where it was asked for
   */
  backward(dy: Tensor): Promise<Tensor | undefined>
  /** Frees the output and what was saved for the backward pass. */
  dispose(): void
}

/** The values of the parameters: whole on every rank, or for as long as somebody computes with them. */
export interface Values {
  /** What an optimizer steps on. */
  readonly shards: readonly ShardParameter[]
  /** Runs the model forward. */
  record(
    x: Tensor,
    options: RecordOptions,
    listener: GradientListener,
  ): ShardedRecording | Promise<ShardedRecording>
  /** After the shards have made a step. */
  publish(): Promise<void>
  /** Makes all parameters whole, until `release`. */
  gather(): Promise<void>
  release(): void
  /** Where shards of values are apart from those of gradients; by bucket. */
  dispose(): void
}
