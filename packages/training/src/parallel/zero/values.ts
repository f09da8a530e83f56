import { tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import type { SegmentedRecording } from '../../autograd/chain.ts'
import type { PieceOwner } from '../../checkpoint/piece.ts'
import type { Module } from '../../model/module.ts'
import type { GradientListener, RecordOptions } from '../../model/recording.ts'
import type { Replicated } from '../gradients/averaging.ts'
import type { ShardParameter } from './shard-parameter.ts'

/** A forward pass of a sharded model. */
export interface ShardedRecording extends Omit<SegmentedRecording, 'backward'> {
  /**
   * Runs the pass backward from `dy`, which stays the caller's; at most once. The gradients of parameters
   * are sent to the ranks that own them.
   *
   * @returns the gradient of the input, which the caller disposes; undefined unless it was requested
   * @throws ERR_TSR_BACKWARD_TWICE; ERR_TSR_ARGUMENT when `dy` has a different shape from the output
   */
  backward(dy: Tensor): Promise<Tensor | undefined>
}

/** Takes the gradients of a backward pass. */
export interface GradientSink {
  readonly onGradient: GradientListener
  /** Waits until there is memory for another bucket. */
  makeRoom(): Promise<void>
  /** Called when the buckets before `end` have all gradients of this pass; default: all buckets. */
  close(end?: number): void
}

/** A bucket of values that a step gathers. */
export interface GatheredBucket {
  /** Number of elements, with the padding. */
  readonly padded: number
  /** How often a step gathers it. */
  readonly times: number
}

/**
 * The values of the parameters, always unsharded (stages 1 and 2) or only while in use (stage 3). As the
 * owner of checkpoint pieces, each rank has a different part of them.
 */
export interface Values extends PieceOwner {
  /** The parameters of an optimizer. */
  readonly shards: readonly ShardParameter[]
  readonly gathered: readonly GatheredBucket[]
  /** Runs the model forward. */
  record(x: Tensor, options: RecordOptions, sink: GradientSink): Promise<ShardedRecording>
  /** @throws ERR_TSR_ARGUMENT when shards have new values that were not published to the other ranks */
  checkPublished(): void
  /** Sends new values to all ranks, after an optimizer has updated the shards. */
  publish(): Promise<void>
  /** Unshards all parameters until `release`. */
  gather(): Promise<void>
  release(): void
  dispose(): void
}

/** @throws ERR_TSR_ARGUMENT unless the module can run forward */
export function asModule(module: Replicated): Module {
  if (module.whole !== undefined) return module.whole
  if ('forward' in module) return module as Module
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'module',
    value: 'parameters without forward',
    expected: 'a module for record(); pass the gradients of anything else to onGradient',
  })
}
