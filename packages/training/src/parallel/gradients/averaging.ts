import type { ProcessGroup } from '@tsrun/distributed'
import type { SpanRecorder } from '@tsrun/distributed/record'
import type { SegmentedRecording } from '../../autograd/chain.ts'
import type { Buffered, Module } from '../../model/module.ts'
import type { Parameter } from '../../model/parameter.ts'
import type { GradientListener, RecordOptions } from '../../model/recording.ts'
import type { Tensor } from '../../tfjs/tfjs.ts'
import type { ClippedGradients } from '../../optim/clip.ts'
import type { Optimizer } from '../../optim/optimizer.ts'

/** What a rank adds to the totals of a step. */
export interface OwnTotals {
  /** The sum of its losses. */
  readonly loss: number
  /** The divisor of the summed loss: the number of examples, or of labels that count. */
  readonly count: number
  readonly examples: number
  /** Whether a loss without a declared `reduction` turned out to be a mean or a sum. */
  readonly found?: 'mean' | 'sum' | undefined
}

/** The totals of all ranks in a step. */
export interface StepTotals extends OwnTotals {
  /** The names of parameters that no rank has used. */
  readonly unused: ReadonlySet<string>
}

/** What `dataParallel` and `fullyShard` replicate: a module, or a rank's part of a pipeline. */
export interface Replicated extends Pick<Buffered, 'buffers' | 'children'> {
  readonly parameters: readonly Parameter[]
  /** The whole model, if this is a pipeline that has all stages on this rank. */
  readonly whole?: Module | undefined
  /** See `Module.communicates`. */
  readonly communicates?: boolean
  /** Whether its loss counts labels: then a mean over replicas would weigh labels differently. */
  readonly countsLabels?: boolean
  /** Sets how the `step` of a trainer such as a pipeline averages gradients; undefined: not at all. */
  averageBy?(averaging: Averaging | undefined): void
}

/** The averages and the totals of a step. */
export interface Averaged<G extends ClippedGradients = ClippedGradients> {
  readonly gradients: G
  /** Undefined if the options need no totals. */
  readonly totals: StepTotals | undefined
}

/** How a trainer with its own `step`, such as a pipeline, averages its gradients over replicas. */
export interface Averaging {
  /** The groups over which gradients are averaged, one after the other. */
  readonly axes: readonly ProcessGroup[]
  /** Groups of the same ranks for modules that communicate in their passes: see `Pass.replicas`. */
  readonly replicas: readonly ProcessGroup[]
  readonly onGradient: GradientListener
  /** `token`: the gradients are of a summed loss, and `average` needs its denominator. */
  readonly reduction: 'mean' | 'token'
  /** The parameters that `update` changes: whole ones, or this rank's parts of them. */
  readonly updated: readonly Parameter[]
  /** The group that shards the parameters, if any. */
  readonly shard: ProcessGroup | undefined
  /**
   * With `reduction: 'token'`: returns the factor of the summed loss before the backward pass. It is
   * close to the final factor of the previous step, so that little or no scaling is left afterwards. All
   * replicas call it, in a pipeline on the last stage.
   *
   * @param count - the denominator of this replica
   */
  scaleFor(count: number): Promise<number>
  /**
   * Waits for the averages, which are not copied. They are divided by the counts of all ranks.
   *
   * @param scale - the factor that the gradients already have
   */
  average(own: OwnTotals, scale: number): Promise<Averaged>
  /** @param recorder - records the optimizer's step */
  update(
    optimizer: Optimizer,
    gradients: ClippedGradients,
    recorder: SpanRecorder | undefined,
  ): Promise<void>
  /** Whether the next backward pass is the last one of its step; see `DataParallel.synchronizes`. */
  synchronizes: boolean
  /**
   * Drops the gradients of a failed step. If some were already sent, all further steps are refused; the
   * next step is also refused unless the step failed on all ranks.
   */
  abandon(error: unknown): void
  /**
   * Runs the model forward, unsharding its parameters one unit at a time. The backward pass of such a
   * recording takes the gradients itself.
   */
  readonly recordUnits?:
    | ((
        x: Tensor,
        options: RecordOptions,
      ) => Promise<Pick<SegmentedRecording, 'value' | 'dispose'> & ShardedBackward>)
    | undefined
  /** Unshards all parameters until `release`. */
  gather(): Promise<void>
  release(): void
}

/** The backward pass of a recording whose gradients go to the ranks that own them. */
interface ShardedBackward {
  backward(dy: Tensor): Promise<Tensor | undefined>
}
