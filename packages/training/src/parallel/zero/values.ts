import { argumentError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import type { PieceOwner } from '../../checkpoint/piece.ts'
import type { Module } from '../../model/module.ts'
import type { GradientListener, RecordOptions } from '../../model/recording.ts'
import type { Replicated, ShardedRecording } from '../gradients/averaging.ts'
import type { ShardParameter } from './shard-parameter.ts'

/** Takes the gradients that a backward pass computes. */
export interface GradientSink {
  readonly onGradient: GradientListener
  /** Waits until memory for another gradient bucket is available. */
  makeRoom(): Promise<void>
  /**
   * Reports that the buckets before index `end` (default: all buckets) have all their gradients of
   * this pass.
   */
  close(end?: number): void
}

/**
 * The parameter values of a sharded model: always unsharded (stages 1 and 2), or unsharded only
 * while in use (stage 3). Each rank saves a different part of them in checkpoints.
 */
export interface Values extends PieceOwner {
  /** This rank's shards of the trained parameters, as an optimizer sees them. */
  readonly shards: readonly ShardParameter[]
  /**
   * For each bucket of parameter values that a step gathers: the number of elements, including the
   * padding, and how many times a step gathers it.
   */
  readonly gathered: readonly Readonly<Record<'padded' | 'times', number>>[]
  /** Runs the model forward, and records it for a backward pass. */
  record(x: Tensor, options: RecordOptions, sink: GradientSink): Promise<ShardedRecording>
  /** Checks that all updates of shards were published to the other ranks. @throws ERR_TSR_ARGUMENT */
  checkPublished?(): void
  /** Sends the values of this rank's updated shards to all ranks. */
  publish(): Promise<void>
  /** Unshards all parameters; `release` shards them again. Absent if they are always unsharded. */
  gather?(): Promise<void>
  release?(): void
  dispose(): void
}

/** Checks that the module has a `forward` method. @throws ERR_TSR_ARGUMENT */
export function asModule(module: Replicated): Module {
  if (module.whole !== undefined) return module.whole
  if ('forward' in module) return module as Module
  throw argumentError(
    'module',
    'parameters without forward',
    'a module for record(); pass the gradients of anything else to onGradient',
  )
}
