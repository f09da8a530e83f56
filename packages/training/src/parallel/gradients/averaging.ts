import type { ProcessGroup } from '@tsrun/distributed'
import type { Parameter } from '../../model/parameter.ts'
import type { GradientListener } from '../../model/recording.ts'
import type { ClippedGradients } from '../../optim/clip.ts'
import type { Optimizer } from '../../optim/optimizer.ts'

/** What `dataParallel` and `fullyShard` replicate: a module, or a rank's part of a pipeline. */
export interface Replicated {
  readonly parameters: readonly Parameter[]
  /** For a trainer with a `step` of its own, which averages with `averaging` from now on, if defined. */
  averageBy?(averaging: Averaging | undefined): void
}

/** How a trainer with a `step` of its own, such as a pipeline, averages its gradients over replicas. */
export interface Averaging {
  readonly onGradient: GradientListener
  /** `token`: the gradients are those of a sum over examples, whose number `gradients` needs. */
  readonly reduction: 'mean' | 'token'
  /** What `update` changes: the parameters, or this rank's parts of them. */
  readonly parameters: readonly Parameter[]
  /** The group among whose ranks parameters are divided, if any. */
  readonly shard: ProcessGroup | undefined
  gradients(tokens?: number): Promise<ClippedGradients>
  update(optimizer: Optimizer, gradients: ClippedGradients): Promise<void>
  /** Unshards all parameters until `release`. */
  gather(): Promise<void>
  release(): void
}
