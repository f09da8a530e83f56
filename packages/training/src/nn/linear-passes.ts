import type { Tensor } from '@tensorflow/tfjs-core'
import type { GradientListener } from '../model/recording.ts'

/** Linear layers in a row that went forward and can go backward, without any checks. */
export interface LinearPasses {
  readonly output: Tensor

  /** At most once, with the parameters that the layers had in the forward pass. */
  backward(dy: Tensor, onGradient: GradientListener): Tensor | undefined

  /** The halves of `backward`, one after the other; each at most once. */
  backwardInput(dy: Tensor): Tensor | undefined
  backwardParameters(onGradient: GradientListener): void

  /** Frees the output and what was saved; once. */
  dispose(): void
}
