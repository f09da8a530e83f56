import type { LazyOperation, LinearOperands } from '../../tfjs/backend.ts'
import type { TensorInfo } from '@tensorflow/tfjs-core'
import { currentHeap, type ProductOptions, type ProductSize, type WasmHeap } from './heap.ts'
import { passes } from './passes.ts'

/**
 * The passes of x W + b at addresses.
 *
 * @param isTransposed - whether the weight is W' [outputs, inputs] in memory
 */
export function linearPasses(
  heap: WasmHeap,
  [rows, outputs, inputs]: ProductSize,
  isTransposed = false,
) {
  const sizeOfWeight: ProductSize = isTransposed ? [outputs, inputs, rows] : [inputs, outputs, rows]
  return {
    sizeOfWeight,
    forward(y: number, x: number, weight: number, options: ProductOptions) {
      const right = { at: weight, transposed: isTransposed }
      heap.multiply(y, { at: x }, right, [rows, outputs, inputs], options)
    },
    /** Writes the gradient of x. */
    input(dx: number, dz: number, weight: number, options?: ProductOptions) {
      const right = { at: weight, transposed: !isTransposed }
      heap.multiply(dx, { at: dz }, right, [rows, inputs, outputs], options)
    },
    weight(dWeight: number, dz: number, x: number, options?: ProductOptions) {
      const [left, right] = isTransposed ? [dz, x] : [x, dz]
      heap.multiply(dWeight, { at: left, transposed: true }, { at: right }, sizeOfWeight, options)
    },
    bias(dBias: number, dz: number) {
      heap.kernels.sum_rows(dBias, dz, rows, outputs)
    },
  }
}

/** One linear layer as an operation on the tape. */
export function wasmLinear(
  { x, weight, bias }: LinearOperands,
  relu: boolean,
): LazyOperation<keyof LinearOperands> {
  const heap = currentHeap()!
  const at = (tensor: TensorInfo) => heap.addressOf(tensor)
  const [inputs, outputs] = [weight.shape[0], bias.size]
  const layer = linearPasses(heap, [x.size / inputs, outputs, inputs])
  return {
    saves: ['x', 'weight'],
    savesOutput: relu,
    forward() {
      const y = heap.scoped([...x.shape.slice(0, -1), outputs])
      layer.forward(at(y), at(x), at(weight), { start: at(bias), relu })
      return y
    },
    gradients(dy, { x, weight }, y) {
      const dz = at(y === undefined ? dy : passes.reluGradient(dy, y))
      return {
        x() {
          const dx = heap.scoped(x.shape)
          layer.input(at(dx), dz, at(weight))
          return dx
        },
        weight() {
          const dWeight = heap.scoped(weight.shape)
          layer.weight(at(dWeight), dz, at(x))
          return dWeight
        },
        bias() {
          const dBias = heap.scoped(bias.shape)
          layer.bias(at(dBias), dz)
          return dBias
        },
      }
    },
  }
}
