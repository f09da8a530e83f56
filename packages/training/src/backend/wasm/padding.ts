import { replaceKernel, type KernelCall } from '../../tfjs/tfjs.ts'
import {
  convolutionPlaces,
  poolingPlaces,
  type WindowAttributes,
} from '../../tfjs/window-places.ts'
import { runOnCpu } from './cpu-kernels.ts'

/**
 * Corrects depthwise convolutions and pooling of the wasm backend at the border. XNNPACK computes the padding
 * `same` wrongly if the stride is larger than the kernel, so it gets the numeric padding that
 * TensorFlow.js computes. For pooling with an empty window, XNNPACK fails and the result stays unwritten.
 */
export function installPadding(): void {
  for (const kernelName of ['DepthwiseConv2dNative', 'FusedDepthwiseConv2D']) {
    replaceSame(kernelName)
  }
  for (const kernelName of ['MaxPool', 'AvgPool']) {
    replaceKernel<KernelCall<'x', WindowAttributes>>(kernelName, 'wasm', (original) => (call) => {
      const isEmpty = hasEmptyWindow(call.inputs.x.shape, call.attrs)
      return isEmpty ? runOnCpu(kernelName, call) : original(call)
    })
  }
}

function replaceSame(kernelName: string): void {
  type Call = KernelCall<'x' | 'filter', WindowAttributes>
  replaceKernel<Call>(kernelName, 'wasm', (original) => (call) => {
    if (call.attrs.pad !== 'same') return original(call)
    const { x, filter } = call.inputs
    const { padInfo } = convolutionPlaces(x.shape, filter.shape, call.attrs, true)
    const { top, bottom, left, right } = padInfo
    const pad: WindowAttributes['pad'] = [
      [0, 0],
      [top, bottom],
      [left, right],
      [0, 0],
    ]
    return original({ ...call, attrs: { ...call.attrs, pad, dimRoundingMode: 'floor' } })
  })
}

function hasEmptyWindow(images: readonly number[], attrs: WindowAttributes): boolean {
  if (typeof attrs.pad === 'string') return false
  const places = poolingPlaces(images, attrs)
  const { top, left } = places.padInfo
  const lastRow = (places.outHeight - 1) * places.strideHeight - top
  const lastColumn = (places.outWidth - 1) * places.strideWidth - left
  return (
    top >= places.filterHeight ||
    left >= places.filterWidth ||
    lastRow >= places.inHeight ||
    lastColumn >= places.inWidth
  )
}
