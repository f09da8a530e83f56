import type { TensorInfo } from '@tensorflow/tfjs-core'
import { replaceKernel } from '../../tfjs/tfjs.ts'

/**
 * The inputs that each kernel passes to XNNPACK (tfjs-backend-wasm 4.22, `conv2d_impl.cc`,
 * `batch_mat_mul_impl.cc`, `Prelu.cc`). XNNPACK multiplies with a packed copy, and keeps the copy as long
 * as the tensor exists. Later writes to the memory of such a tensor do not change results.
 */
const packing: Readonly<Record<string, readonly string[]>> = {
  Conv2D: ['filter'],
  FusedConv2D: ['filter', 'bias'],
  DepthwiseConv2dNative: ['filter'],
  FusedDepthwiseConv2D: ['filter', 'bias'],
  Prelu: ['alpha'],
}

/** The data ids of packed tensors. Clones of a tensor have the same data id. */
const packed = new WeakSet()

/** Whether XNNPACK may hold a copy of the memory of the tensor. */
export function isPacked({ dataId }: TensorInfo): boolean {
  return packed.has(dataId)
}

export function markPacked(...tensors: readonly (TensorInfo | undefined)[]): void {
  for (const tensor of tensors) if (tensor !== undefined) packed.add(tensor.dataId)
}

/** Wraps the kernels in `packing` so that they mark the tensors that they pack. */
export function trackPacking(): void {
  for (const [kernelName, names] of Object.entries(packing)) {
    replaceKernel(kernelName, 'wasm', (original) => (call) => {
      markPacked(...names.map((name) => call.inputs[name]))
      return original(call)
    })
  }
}
