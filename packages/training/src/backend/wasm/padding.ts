import type { backend_util, TensorInfo } from '@tensorflow/tfjs-core'
import { replaceKernel, tf } from '../../tfjs/tfjs.ts'
import { runOnCpu } from './cpu-kernels.ts'

type Size = Parameters<typeof backend_util.computeConv2DInfo>[2]
type Shape = [number, number, number, number]

interface Attributes {
  readonly strides: Size
  readonly pad: Parameters<typeof backend_util.computeConv2DInfo>[4]
  readonly dilations?: Size
  readonly dimRoundingMode?: 'floor' | 'round' | 'ceil'
  /** Present only if the kernel is a pooling kernel. */
  readonly filterSize: Size
}

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
    replaceKernel(kernelName, 'wasm', (original) => (call) => {
      const { x } = call.inputs as { readonly x: TensorInfo }
      return hasEmptyWindow(x.shape as Shape, call.attrs as unknown as Attributes)
        ? runOnCpu(kernelName, call)
        : original(call)
    })
  }
}

function replaceSame(kernelName: string): void {
  replaceKernel(kernelName, 'wasm', (original) => (call) => {
    const { strides, pad, dilations = 1 } = call.attrs as unknown as Attributes
    if (pad !== 'same') return original(call)
    const { x, filter } = call.inputs as Readonly<Record<'x' | 'filter', TensorInfo>>
    const { padInfo } = tf.backend_util.computeConv2DInfo(
      x.shape as Shape,
      filter.shape as Shape,
      strides,
      dilations,
      pad,
      undefined,
      true,
    )
    const { top, bottom, left, right } = padInfo
    const numbers = [
      [0, 0],
      [top, bottom],
      [left, right],
      [0, 0],
    ]
    const attrs = { ...call.attrs, pad: numbers, dimRoundingMode: 'floor' }
    return original({ ...call, attrs })
  })
}

function hasEmptyWindow(images: Shape, attrs: Attributes): boolean {
  const { filterSize, strides, pad, dimRoundingMode } = attrs
  if (pad === 'same' || pad === 'valid') return false
  const places = tf.backend_util.computePool2DInfo(
    images,
    filterSize,
    strides,
    1,
    pad,
    dimRoundingMode,
  )
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
