import type { ProcessGroup } from '@tsrun/distributed'
import type { GradientListener } from '../../model/recording.ts'
import type { Parameter } from '../../model/parameter.ts'
import type { ClippedGradients } from '../../optim/clip.ts'
import type { Optimizer } from '../../optim/optimizer.ts'

/** How what makes its own steps, such as a pipeline, has its gradients averaged in them. */
export interface Averaging {
  readonly onGradient: GradientListener
  /** `token`: gradients are those of a sum over examples, and their number goes to `gradients`. */
  readonly reduction: 'mean' | 'token'
  /** What `update` changes: the parameters, or this rank's parts of them. */
  readonly parameters: readonly Parameter[]
  /** Whose ranks have a part each. */
  readonly shard: ProcessGroup | undefined
  gradients(tokens?: number): Promise<ClippedGradients>
  update(optimizer: Optimizer, gradients: ClippedGradients): Promise<void>
  /** Makes the parameters whole until `release`. */
  gather(): Promise<void>
  release(): void
}
