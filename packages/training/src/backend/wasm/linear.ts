import type { LazyOperation, LinearOperands } from '../../tfjs/backend.ts'
import { currentHeap } from './heap.ts'
import { passes } from './passes.ts'

/** One linear layer as an operation on the tape. */
export function wasmLinear(
  { x, weight, bias }: LinearOperands,
  relu: boolean,
): LazyOperation<keyof LinearOperands> {
  const heap = currentHeap()!
  const [inputs, outputs] = [weight.shape[0], bias.size]
  const rows = x.size / inputs
  return {
    saves: ['x', 'weight'],
    savesOutput: relu,
    forward() {
      const y = heap.scoped([...x.shape.slice(0, -1), outputs])
      heap.multiply(
        heap.addressOf(y),
        { at: heap.addressOf(x) },
        { at: heap.addressOf(weight) },
        [rows, outputs, inputs],
        { start: heap.addressOf(bias), relu },
      )
      return y
    },
    gradients(dy, { x, weight }, y) {
      const dz = { at: heap.addressOf(y === undefined ? dy : passes.reluGradient(dy, y)) }
      return {
        x() {
          const dx = heap.scoped(x.shape)
          const right = { at: heap.addressOf(weight), transposed: true }
          heap.multiply(heap.addressOf(dx), dz, right, [rows, inputs, outputs])
          return dx
        },
        weight() {
          const dWeight = heap.scoped(weight.shape)
          const left = { at: heap.addressOf(x), transposed: true }
          heap.multiply(heap.addressOf(dWeight), left, dz, [inputs, outputs, rows])
          return dWeight
        },
        bias() {
          const dBias = heap.scoped(bias.shape)
          heap.kernels.sum_rows(heap.addressOf(dBias), dz.at, rows, outputs)
          return dBias
        },
      }
    },
  }
}
