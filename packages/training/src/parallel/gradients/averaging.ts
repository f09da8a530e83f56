import type { ProcessGroup } from '@tsrun/distributed'
import type { SpanRecorder } from '@tsrun/distributed/record'
import type { SegmentedRecording } from '../../autograd/chain.ts'
import type { Buffered, Module } from '../../model/module.ts'
import type { Parameter } from '../../model/parameter.ts'
import type { GradientListener, RecordOptions } from '../../model/recording.ts'
import type { Tensor } from '../../tfjs/tfjs.ts'
import type { ClippedGradients } from '../../optim/clip.ts'
import type { Optimizer } from '../../optim/optimizer.ts'

/** The contribution of one rank to the totals of a step. */
export interface OwnTotals {
  /** The sum of this rank's losses. */
  readonly loss: number
  /** The divisor of the summed loss: the number of examples, or of labels that are not ignored. */
  readonly count: number
  readonly examples: number
  /** The detected reduction of a loss that does not declare its `reduction`; undefined if unknown. */
  readonly found?: 'mean' | 'sum' | undefined
}

/** The totals of a step over all ranks. */
export interface StepTotals extends OwnTotals {
  /** The names of parameters that no rank has used. */
  readonly unused: ReadonlySet<string>
}

/** A model that `dataParallel` or `fullyShard` can replicate: a module, or a rank's part of a pipeline. */
export interface Replicated extends Pick<Buffered, 'buffers' | 'children'> {
  readonly parameters: readonly Parameter[]
  /** The whole model; only for a pipeline whose stages are all on this rank. */
  readonly whole?: Module | undefined
  /** Whether passes communicate with replicas; see `Module.communicates`. */
  readonly communicates?: boolean
  /** Whether the loss counts labels. A plain mean over replicas would then weigh labels unequally. */
  readonly countsLabels?: boolean
  /**
   * Called on all ranks before the model is replicated. Pipelines make parameters that several stages
   * share equal, because sharded values could not be replaced later.
   */
  prepare?(): Promise<void>
  /** Sets how the `step` of a pipeline averages gradients over replicas. With undefined, it does not. */
  averageBy?(averaging: Averaging | undefined): void
}

/**
 * Averaged gradients by parameter name, as parts of the buckets or as copies. With ZeRO they cover only this
 * rank's shares.
 */
export type Averages = ReadonlyMap<string, Float32Array>

/** The averaged gradients and the totals of a step. */
export interface Averaged {
  readonly gradients: Averages
  /** The totals of the step; undefined if the options need no totals. */
  readonly totals: StepTotals | undefined
}

/** Gradient averaging over replicas, for a trainer with its own `step`, such as a pipeline. */
export interface Averaging {
  /** The groups over which gradients are averaged. */
  readonly axes: readonly ProcessGroup[]
  /** Copies of `axes` for modules that communicate in their passes; see `Pass.replicas`. */
  readonly replicas: readonly ProcessGroup[]
  readonly onGradient: GradientListener
  /** `token` divides the gradients of a summed loss by the total number of tokens. */
  readonly reduction: 'mean' | 'token'
  /** The parameters that `update` changes: whole parameters, or this rank's shards. */
  readonly updated: readonly Parameter[]
  /** The group that shards the parameters; undefined if they are whole. */
  readonly shard: ProcessGroup | undefined
  /**
   * With `reduction: 'token'`: returns a factor by which to multiply the summed loss before the backward
   * pass, so that gradients need little or no scaling afterwards. All replicas call it on the last stage.
   *
   * @param count - the divisor of this replica's summed loss
   */
  scaleFor(count: number): Promise<number>
  /**
   * Waits for the averaged gradients. The arrays are bucket memory, not copies.
   *
   * @param scale - the factor by which the loss was multiplied before the backward pass
   */
  average(own: OwnTotals, scale: number): Promise<Averaged>
  /**
   * Updates the parameters with the averaged gradients.
   *
   * @param recorder - records the optimizer step as a span
   */
  update(
    optimizer: Optimizer,
    gradients: ClippedGradients,
    recorder: SpanRecorder | undefined,
  ): Promise<void>
  /** Whether the next backward pass is the last one of its step; see `DataParallel.synchronizes`. */
  synchronizes: boolean
  /**
   * Drops the gradients of a failed step. If some were already sent, all later steps throw. Otherwise the
   * next step throws unless this step failed on all ranks.
   */
  abandon(error: unknown): void
  /** Runs the model forward, and unshards the parameters of one unit at a time. */
  readonly recordUnits?:
    ((x: Tensor, options: RecordOptions) => Promise<ShardedRecording>) | undefined
  /** Unshards all parameters; `release` shards them again. */
  gather(): Promise<void>
  release(): void
}

/** A forward pass of a sharded model, with a method for its backward pass. */
export interface ShardedRecording extends Omit<SegmentedRecording, 'backward'> {
  /**
   * Runs the backward pass from `dy`, at most once. The caller still owns `dy`. Gradients of
   * parameters are sent to the ranks that own the shards.
   *
   * @returns the gradient of the input, which the caller disposes; undefined unless it was
   *   requested
   * @throws ERR_TSR_BACKWARD_TWICE; ERR_TSR_ARGUMENT when the shape of `dy` is not the shape of the
   *   output
   */
  backward(dy: Tensor): Promise<Tensor | undefined>
}
