import { tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import type { RecordOptions } from '../../model/recording.ts'
import type { PieceOwner } from '../../checkpoint/piece.ts'
import type { Module } from '../../model/module.ts'
import type { Parameter } from '../../model/parameter.ts'
import type { Replicated } from '../data/options.ts'
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
   * @throws ERR_TSR_BACKWARD_TWICE, ERR_TSR_ARGUMENT when `dy` has another shape
   */
  backward(dy: Tensor): Promise<Tensor | undefined>
  /** Frees the output and what was saved for the backward pass. */
  dispose(): void
}

/** Where the gradients of a backward pass go. */
export interface GradientSink {
  /** @param isComplete - this pass adds no more to it; the tensor is the callee's */
  take(parameter: Parameter, gradient: Tensor, isComplete: boolean): void
  /** The buckets before `end` have got what there is in this pass. */
  close(end?: number): void
  /** Waits until there is memory for the next bucket. */
  makeRoom(): Promise<void>
}

/** A bucket that is gathered in each step. */
export interface Gathered {
  /** Elements, with the padding. */
  readonly padded: number
  readonly times: number
}

/**
 * The values of the parameters: whole on every rank, or for as long as somebody computes with them.
 * Ranks own disjoint parts of them in checkpoints.
 */
export interface Values extends PieceOwner {
  /** What an optimizer steps on. */
  readonly shards: readonly ShardParameter[]
  readonly gathered: readonly Gathered[]
  /** Runs the model forward. */
  record(x: Tensor, options: RecordOptions, sink: GradientSink): Promise<ShardedRecording>
  /** @throws ERR_TSR_ARGUMENT when shards have made a step, and others would not get their values */
  checkPublished(): void
  /** After the shards have made a step. */
  publish(): Promise<void>
  /** Makes all parameters whole, until `release`. */
  gather(): Promise<void>
  release(): void
  dispose(): void
}

/** @throws ERR_TSR_ARGUMENT unless it can run forward */
export function asModule(module: Replicated): Module {
  if ('forward' in module) return module as Module
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'module',
    value: 'parameters without forward',
    expected: 'a module for record(); give gradients of anything else to onGradient',
  })
}
