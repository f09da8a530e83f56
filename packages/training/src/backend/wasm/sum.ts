import type { TensorInfo } from '@tensorflow/tfjs-core'
import { sizeOf } from '../shape.ts'
import { tf } from '../tfjs.ts'
import { replaceKernel } from '../tfjs-kernels.ts'
import type { WasmBackend } from './backend.ts'
import { heapOf } from './heap.ts'

interface SumCall {
  readonly inputs: { readonly x: TensorInfo }
  readonly attrs: { readonly axis: number | readonly number[] | null; readonly keepDims: boolean }
  readonly backend: WasmBackend
}

/**
 * Sums over the first axes row by row, in double precision: the gradient of every bias. The wasm
 * backend's own kernel transposes first, and leaves the memory as it was where there are no rows.
 */
export function installSum(): void {
  replaceKernel('Sum', 'wasm', (stock) => (call) => {
    const { inputs, attrs, backend } = call as unknown as SumCall
    const { x } = inputs
    const axes = tf.util
      .parseAxisParam((attrs.axis ?? []) as number[], x.shape)
      .sort((a, b) => a - b)
    const isLeading = axes.length < x.shape.length && axes.every((axis, i) => axis === i)
    const rows = sizeOf(x.shape.slice(0, axes.length))
    if (axes.length === 0 || !isLeading || x.dtype !== 'float32') return stock(call)
    const rest = x.shape.slice(axes.length)
    const shape = attrs.keepDims ? [...axes.map(() => 1), ...rest] : rest
    const out = backend.makeOutput(shape, 'float32')
    const heap = heapOf(backend)
    heap.sumRows(heap.addressOf(out), heap.addressOf(x), rows, sizeOf(rest))
    return out
  })
}
