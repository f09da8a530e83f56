import type { TensorInfo } from '@tensorflow/tfjs-core'
import { replaceKernel } from '../../tfjs/tfjs.ts'

/**
 * Kernels that pass inputs to XNNPACK, which multiplies with a packed copy of them and keeps it for as
 * long as the tensor lives (tfjs-backend-wasm 4.22, `conv2d_impl.cc`, `batch_mat_mul_impl.cc`,
 * `Prelu.cc`). Writing into the memory of such a tensor later does not change the results.
 */
const packing: Readonly<Record<string, readonly string[]>> = {
  Conv2D: ['filter'],
  FusedConv2D: ['filter', 'bias'],
  DepthwiseConv2dNative: ['filter'],
  FusedDepthwiseConv2D: ['filter', 'bias'],
  Prelu: ['alpha'],
}

/** By data id, which is all that the clones of a tensor have in common. */
const packed = new WeakSet()

/** Whether XNNPACK may hold a copy of the memory of the tensor. */
export function isPacked({ dataId }: TensorInfo): boolean {
  return packed.has(dataId)
}

export function markPacked(...tensors: readonly (TensorInfo | undefined)[]): void {
  for (const tensor of tensors) if (tensor !== undefined) packed.add(tensor.dataId)
}

/** Makes the kernels in the table above mark the tensors that they pack. */
export function trackPacking(): void {
  for (const [kernelName, names] of Object.entries(packing)) {
    replaceKernel(kernelName, 'wasm', (original) => (call) => {
      markPacked(...names.map((name) => call.inputs[name]))
      return original(call)
    })
  }
}
