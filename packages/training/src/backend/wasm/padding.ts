import { sizeOf } from '../../tfjs/host-arrays.ts'
import { replaceKernel, type KernelCall } from '../../tfjs/tfjs.ts'
import {
  convolutionPlaces,
  poolingPlaces,
  withPadding,
  type Places,
  type WindowAttributes,
} from '../../tfjs/window-places.ts'
import { runOnCpu } from './cpu-kernels.ts'
import { hasNaN } from './heap.ts'
import { activated } from './matmul.ts'

/**
 * Corrects convolutions and average pooling of the wasm backend at the border. XNNPACK computes the padding
 * `same` wrongly if the stride is larger than the kernel, and always rounds the size of the output down. So
 * XNNPACK gets numeric padding for the windows of TensorFlow.js. If no padding gives these windows, the cpu
 * backend runs. It also runs if there are no windows, because XNNPACK then writes beyond its memory, for pooling
 * with an empty window, which XNNPACK leaves unwritten, and for NaN, which XNNPACK replaces by numbers.
 */
export function installPadding(): void {
  type Convolution = KernelCall<'x' | 'filter', WindowAttributes>
  for (const kernelName of CONVOLUTIONS) {
    const isDepthwise = kernelName.includes('Depthwise')
    replaceKernel<Convolution>(kernelName, 'wasm', (original) => (call) => {
      const { inputs, attrs } = call
      const { x, filter } = inputs
      const clamp = clampOf(attrs.activation, isDepthwise)
      if (clamp !== undefined) return activated(clamp, kernelName, call)
      const places = convolutionPlaces(x.shape, filter.shape, attrs, isDepthwise)
      const padded = withPadding(attrs, places)
      return padded === undefined || sizeOf(places.outShape) === 0
        ? runOnCpu(kernelName, call)
        : original({ ...call, attrs: padded })
    })
  }
  replaceKernel<KernelCall<'x', WindowAttributes>>('AvgPool', 'wasm', (original) => (call) => {
    const places = poolingPlaces(call.inputs.x.shape, call.attrs)
    const attrs = withPadding(call.attrs, places)
    const { x } = call.inputs
    const isEmpty =
      sizeOf(places.outShape) === 0 ||
      (typeof call.attrs.pad !== 'string' && hasEmptyWindow(places))
    const isFloat = x.dtype === 'float32'
    return isEmpty || !isFloat || attrs === undefined || hasNaN(x)
      ? runOnCpu('AvgPool', call)
      : original({ ...call, attrs })
  })
}

/** The kernel of an activation that XNNPACK computes as limits of its output, which replace NaN. */
function clampOf(activation: string | undefined, isDepthwise: boolean): string | undefined {
  if (activation === 'relu6') return 'Relu6'
  return activation === 'relu' && isDepthwise ? 'Relu' : undefined
}

const CONVOLUTIONS = ['Conv2D', 'FusedConv2D', 'DepthwiseConv2dNative', 'FusedDepthwiseConv2D']

function hasEmptyWindow(places: Places): boolean {
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
