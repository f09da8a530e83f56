import type { Tensor } from '@tensorflow/tfjs-core'
import type { GradientListener } from '../model/recording.ts'
import { sum as add } from '../backend/device-math.ts'
import { currentHeap } from '../backend/wasm/heap.ts'

/**
 * Collects gradients by parameter name, to sum them over micro-batches.
 *
 * @example
 * const gradients = new Map<string, Tensor>()
 * for (const { x, dy } of microbatches) recording(x).backward(dy, sumInto(gradients))
 * optimizer.step(model.parameters, gradients)
 */
export function sumInto(gradients: Map<string, Tensor>): GradientListener {
  const listener: GradientListener = ({ name }, gradient) => {
    const sum = gradients.get(name)
    if (sum === undefined) gradients.set(name, gradient)
    else if (addInto(sum, gradient)) gradient.dispose()
    else {
      gradients.set(name, add(sum, gradient))
      sum.dispose()
      gradient.dispose()
    }
  }
  return Object.assign(listener, { sums: gradients })
}

/** sum += gradient without a new tensor, if no other tensor shares the memory of `sum`. */
function addInto(sum: Tensor, gradient: Tensor): boolean {
  const heap = currentHeap()
  if (heap === undefined || !heap.isWritable(sum) || sum.size !== gradient.size) return false
  const at = heap.addressOf(sum)
  heap.kernels.add_scaled(at, at, 1, heap.addressOf(gradient), sum.size)
  return true
}
