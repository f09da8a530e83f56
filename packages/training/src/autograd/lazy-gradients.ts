import type { Tensor } from '@tensorflow/tfjs-core'
import { tf } from '../tfjs/tfjs.ts'

type Each<K extends string, T> = Readonly<Record<K, T>>

/** An operation with gradients of its own. */
export interface LazyOperation<K extends string> {
  forward(): Tensor
  /**
   * For each input what makes its gradient, called only where that is wanted, in their order.
   *
   * @param inputs - as they were in the forward pass
   */
  gradients(dy: Tensor, inputs: Each<K, Tensor>): Each<K, () => Tensor>
}

/** What tf.customGrad is made of. */
interface PrivateEngine {
  runKernelFunc<K extends string>(call: {
    readonly inputs: Each<K, Tensor>
    readonly forwardFunc: (backend: unknown, save: (tensors: Tensor[]) => void) => Tensor
    readonly backwardsFunc: (dy: Tensor, saved: Tensor[]) => Each<K, () => Tensor>
  }): Tensor
}

/** tf.customGrad computes all gradients, also those that nobody asks for; this one does not. */
export function withLazyGradients<K extends string>(
  inputs: Each<K, Tensor>,
  operation: LazyOperation<K>,
): Tensor {
  const keys = Object.keys(inputs) as K[]
  return (tf.engine() as unknown as PrivateEngine).runKernelFunc<K>({
    inputs,
    forwardFunc: (_, save) => {
      save(keys.map((key) => inputs[key]))
      return operation.forward()
    },
    backwardsFunc: (dy, saved) => {
      const entries = keys.map((key, i) => [key, saved[i]!] as const)
      return operation.gradients(dy, Object.fromEntries(entries) as Record<K, Tensor>)
    },
  })
}
