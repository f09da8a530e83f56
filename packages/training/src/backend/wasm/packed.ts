import type { TensorInfo } from '@tensorflow/tfjs-core'
import { replaceKernel } from '../tfjs-kernels.ts'

/**
 * Kernels that hand inputs to XNNPACK, which multiplies with a packed copy of them and keeps it for
 * as long as the tensor lives (tfjs-backend-wasm 4.22, `conv2d_impl.cc`, `batch_mat_mul_impl.cc`,
 * `Prelu.cc`): what is written into such a tensor later changes its values, but no result.
 */
const packing: Readonly<Record<string, readonly string[]>> = {
  Conv2D: ['filter'],
  FusedConv2D: ['filter', 'bias'],
  DepthwiseConv2dNative: ['filter'],
  FusedDepthwiseConv2D: ['filter', 'bias'],
  Prelu: ['alpha'],
}

const packed = new WeakSet()

/** Whether XNNPACK may hold a copy of the tensor's memory. */
export function isPacked({ dataId }: TensorInfo): boolean {
  return packed.has(dataId)
}

export function markPacked(...tensors: readonly (TensorInfo | undefined)[]): void {
  for (const tensor of tensors) if (tensor !== undefined) packed.add(tensor.dataId)
}

/** Lets the kernels of the table leave a mark on what they pack. */
export function watchPacking(): void {
  for (const [kernelName, names] of Object.entries(packing)) {
    replaceKernel(kernelName, 'wasm', (stock) => (call) => {
      markPacked(...names.map((name) => call.inputs[name]))
      return stock(call)
    })
  }
}
