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
  /** What the sum is divided by in the end: the number of examples, or of labels that count. */
  readonly count: number
  readonly examples: number
  /** What was found out about a loss that does not say what it is. */
  readonly found?: 'mean' | 'sum' | undefined
}

/** What all ranks have together in a step, beside the gradients. */
export interface StepTotals extends OwnTotals {
  /** Names of parameters that no rank has used. */
  readonly unused: ReadonlySet<string>
}

/** What `dataParallel` and `fullyShard` replicate: a module, or a rank's part of a pipeline. */
export interface Replicated extends Pick<Buffered, 'buffers' | 'children'> {
  readonly parameters: readonly Parameter[]
  /** The model, if it is not this object itself, and can run forward on this rank. */
  readonly whole?: Module | undefined
  /** See `Module.communicates`. */
  readonly communicates?: boolean
  /** Whether its loss says what it counts: a mean over replicas would weigh their labels differently. */
  readonly countsLabels?: boolean
  /** For a trainer with a `step` of its own, which averages with `averaging` from now on, if defined. */
  averageBy?(averaging: Averaging | undefined): void
}

/** The averages of a step, and what all replicas have together beside them. */
export interface Averaged<G extends ClippedGradients = ClippedGradients> {
  readonly gradients: G
  /** Undefined if the options need none. */
  readonly totals: StepTotals | undefined
}

/** How a trainer with a `step` of its own, such as a pipeline, averages its gradients over replicas. */
export interface Averaging {
  /** The groups over whose ranks gradients are averaged, one after the other. */
  readonly axes: readonly ProcessGroup[]
  /** The same ranks, in groups for the passes of modules that communicate: see `Pass.replicas`. */
  readonly replicas: readonly ProcessGroup[]
  readonly onGradient: GradientListener
  /** `token`: the gradients are those of a sum, whose denominator `average` needs. */
  readonly reduction: 'mean' | 'token'
  /** What `update` changes: the parameters, or this rank's parts of them. */
  readonly updated: readonly Parameter[]
  /** The group among whose ranks parameters are divided, if any. */
  readonly shard: ProcessGroup | undefined
  /**
   * With `reduction: 'token'`: what the summed loss of this step is multiplied by before its backward
   * pass. It is near the factor of the last step, which then has little or nothing left to do. All
   * replicas call it, in a pipeline on the last stage.
   *
   * @param count - what this replica adds to the denominator
   */
  scaleFor(count: number): Promise<number>
  /**
   * Waits for the averages, without a copy of them. They are divided by the counts of all ranks.
   *
   * @param scale - what the gradients are multiplied by already
   */
  average(own: OwnTotals, scale: number): Promise<Averaged>
  /** @param recorder - of the step of the optimizer */
  update(
    optimizer: Optimizer,
    gradients: ClippedGradients,
    recorder: SpanRecorder | undefined,
  ): Promise<void>
  /** Whether the next backward pass is the last one of its step; see `DataParallel.synchronizes`. */
  synchronizes: boolean
  /**
   * Forgets the gradients of a step that has failed. If some of them were sent already, further steps
   * are refused; and so is the next one, if the step has not failed on all ranks.
   */
  abandon(error: unknown): void
  /**
   * Runs the model forward, if its parameters are unsharded one unit at a time. The backward pass of
   * such a recording takes the gradients itself.
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
