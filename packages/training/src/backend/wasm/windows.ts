import type { TensorInfo } from '@tensorflow/tfjs-core'
import { sizeOf } from '../../tfjs/host-arrays.ts'
import { replaceKernel, runKernel, type KernelCall } from '../../tfjs/tfjs.ts'
import {
  axesOf,
  convolutionPlaces,
  poolingPlaces,
  withPadding,
  type Places,
  type WindowAttributes,
} from '../../tfjs/window-places.ts'
import { hasNaN, heapOf, type WasmModule } from './heap.ts'
import { activated } from './matmul.ts'
import { trackPacking } from './packed-tensors.ts'
import { run } from './passes.ts'
import { runOnCpu } from './replaced-kernels.ts'

type Call<K extends string> = KernelCall<K, WindowAttributes, WasmModule>

/**
 * Replaces convolutions, with and without a bias and an activation, by products with the values of all
 * windows. XNNPACK packs the filter again after every update, and computes the padding `same` wrongly if
 * the stride is larger than the kernel. Dilations, other activations and other layouts still use the
 * original kernels.
 *
 * Replaces max pooling. XNNPACK replaces NaN by numbers, and always rounds the size of the output down.
 *
 * Adds the gradients of convolutions that the wasm backend lacks. Replaces the gradients of images and of
 * pooling, because the originals are scalar loops that take 15 to 50 times as long as the forward pass.
 * The original gradient of max pooling is also wrong for windows without a positive value, and writes
 * outside of its tensor.
 */
export function installWindows(): void {
  installPadding()
  // Before the products below, which pack nothing.
  trackPacking()
  for (const kernelName of ['Conv2D', 'FusedConv2D']) {
    replaceKernel<Call<'x' | 'filter'>>(
      kernelName,
      'wasm',
      (original) => (call) => (isPlain(call) ? convolve(call) : original(call)),
    )
  }
  replaceKernel('MaxPool', 'wasm', () => maxPool)
  replaceKernel('Conv2DBackpropFilter', 'wasm', () => filterGradient)
  replaceKernel('Conv2DBackpropInput', 'wasm', () => inputGradient)
  replaceKernel('DepthwiseConv2dNativeBackpropFilter', 'wasm', () => depthwiseGradient)
  replaceKernel('DepthwiseConv2dNativeBackpropInput', 'wasm', () => depthwiseGradient)
  replaceKernel('MaxPoolGrad', 'wasm', () => maxPoolGradient)
  replaceKernel('AvgPoolGrad', 'wasm', () => averagePoolGradient)
}

/**
 * Corrects convolutions and average pooling of the wasm backend at the border. XNNPACK computes the padding
 * `same` wrongly if the stride is larger than the kernel, and always rounds the size of the output down. So
 * XNNPACK gets numeric padding for the windows of TensorFlow.js. If no padding gives these windows, the cpu
 * backend runs. It also runs if there are no windows, because XNNPACK then writes beyond its memory, for pooling
 * with an empty window, which XNNPACK leaves unwritten, and for NaN, which XNNPACK replaces by numbers.
 */
function installPadding(): void {
  for (const kernelName of CONVOLUTIONS) {
    const isDepthwise = kernelName.includes('Depthwise')
    replaceKernel<Call<'x' | 'filter'>>(kernelName, 'wasm', (original) => (call) => {
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
  replaceKernel<Call<'x'>>('AvgPool', 'wasm', (original) => (call) => {
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
  return axesOf(places).some(
    ({ size, window, stride, before, outputs }) =>
      before >= window || (outputs - 1) * stride - before >= size,
  )
}

function isPlain({ inputs, attrs }: Call<'x' | 'filter'>): boolean {
  const { dilations = 1, dataFormat = 'NHWC', activation = 'linear' } = attrs
  const { x, filter, bias } = inputs
  return (
    [dilations].flat().every((dilation) => dilation === 1) &&
    dataFormat === 'NHWC' &&
    ['linear', 'relu'].includes(activation) &&
    [x, filter].every(({ dtype }) => dtype === 'float32') &&
    (bias === undefined || sizeOf(bias.shape) === filter.shape[3])
  )
}

/** Computes a convolution: windows filter, with one row of values for each window. */
function convolve({ inputs, attrs, backend }: Call<'x' | 'filter'>): TensorInfo {
  const { x, filter, bias } = inputs
  const places = convolutionPlaces(x.shape, filter.shape, attrs)
  const windows = windowsOf(backend, places)
  const outputs = places.outChannels
  const out = backend.makeOutput(places.outShape, 'float32')
  const { heap } = windows
  const start = bias === undefined ? 0 : heap.addressOf(bias)
  windows.forParts((first, last, geometry, patches) => {
    heap.kernels.take_windows(patches, heap.addressOf(x), first, last, geometry)
    heap.multiply(
      heap.addressOf(out) + 4 * first * outputs,
      { at: patches },
      { at: heap.addressOf(filter) },
      [last - first, outputs, windows.values],
      { start, relu: attrs.activation === 'relu' },
    )
  })
  return out
}

function maxPool(call: Call<'x'>): TensorInfo | TensorInfo[] {
  const { inputs, attrs, backend } = call
  const { x } = inputs
  if (x.dtype !== 'float32') return runOnCpu('MaxPool', call)
  const places = poolingPlaces(x.shape, attrs)
  const out = backend.makeOutput(places.outShape, 'float32')
  const { count, use } = windowsOf(backend, places)
  use((geometry) => {
    run('max_pool', [out, x], count, geometry)
  })
  return out
}

/** Computes the gradient of the filter: windows^T dy, with one row of values for each window. */
function filterGradient({ inputs, attrs, backend }: Call<'x' | 'dy'>): TensorInfo {
  const { x, dy } = inputs
  const filterShape = attrs.filterShape!
  const windows = windowsOf(backend, convolutionPlaces(x.shape, filterShape, attrs))
  const outputs = filterShape[3]
  const out = zeros(backend, filterShape)
  const { heap } = windows
  windows.forParts((first, last, geometry, patches) => {
    heap.kernels.take_windows(patches, heap.addressOf(x), first, last, geometry)
    heap.multiply(
      heap.addressOf(out),
      { at: patches, transposed: true },
      { at: heap.addressOf(dy) + 4 * first * outputs },
      [windows.values, outputs, last - first],
      { accumulates: true },
    )
  })
  return out
}

/**
 * Computes the gradient of the images: dy filter^T gives the gradient of each window, which is added to
 * the image at the position of the window.
 */
function inputGradient({ inputs, attrs, backend }: Call<'dy' | 'filter'>): TensorInfo {
  const { dy, filter } = inputs
  const inputShape = attrs.inputShape!
  const windows = windowsOf(backend, convolutionPlaces(inputShape, filter.shape, attrs))
  const outputs = filter.shape[3]!
  const out = zeros(backend, inputShape)
  const { heap, values } = windows
  // The products of all parts use it, and are faster than with an operand to transpose.
  const transposed = runKernel(
    'Transpose',
    { x: { dataId: filter.dataId, dtype: 'float32', shape: [values, outputs] } },
    { perm: [1, 0] },
  )
  windows.forParts((first, last, geometry, patches) => {
    heap.multiply(
      patches,
      { at: heap.addressOf(dy) + 4 * first * outputs },
      { at: heap.addressOf(transposed) },
      [last - first, values, outputs],
    )
    heap.kernels.add_windows(heap.addressOf(out), patches, first, last, geometry)
  })
  transposed.dispose()
  return out
}

/** What `window_gradient` computes, by the numbers of kernels/windows.as.ts. */
const [FILTER, IMAGES, AVERAGE] = [0, 1, 2] as const

/** Computes the gradient of the filter from `x`, or that of the images from `filter`. */
function depthwiseGradient({ inputs, attrs, backend }: Call<'dy'>): TensorInfo {
  const { x, filter, dy } = inputs
  const images = x?.shape ?? attrs.inputShape!
  const weights = filter?.shape ?? attrs.filterShape!
  const places = convolutionPlaces(images, weights, attrs, true)
  const kind = filter === undefined ? FILTER : IMAGES
  return sumOver(
    places,
    backend,
    kind === FILTER ? weights : images,
    (out, { heap, count }, at) => {
      const [of, by] = [heap.addressOf(x ?? out), heap.addressOf(filter ?? out)]
      heap.kernels.window_gradient(kind, of, by, 0, heap.addressOf(dy), count, weights[3]!, at)
    },
  )
}

function maxPoolGradient({ inputs, attrs, backend }: Call<'dy' | 'input'>): TensorInfo {
  const { dy, input } = inputs
  const places = poolingPlaces(input.shape, attrs)
  const least = attrs.isRectified === true ? 0 : -Infinity
  return sumOver(places, backend, input.shape, (out, { count }, geometry) => {
    run('max_pool_gradient', [out, input, dy], count, geometry, least)
  })
}

/**
 * Computes the gradient of average pooling. Divides by the size of the whole window, even at the border;
 * `correctAveragePoolGradients` corrects that.
 */
function averagePoolGradient({ inputs, attrs, backend }: Call<'dy' | 'input'>): TensorInfo {
  const { dy, input } = inputs
  const places = poolingPlaces(input.shape, attrs)
  const factor = 1 / (places.filterHeight * places.filterWidth)
  return sumOver(places, backend, input.shape, (out, { heap, count }, geometry) => {
    const [dx, slopes] = [heap.addressOf(out), heap.addressOf(dy)]
    heap.kernels.window_gradient(AVERAGE, dx, 0, factor, slopes, count, 1, geometry)
  })
}

/** Returns a tensor to which `add` adds what all windows contribute. */
function sumOver(
  places: Places,
  backend: WasmModule,
  shape: readonly number[],
  add: (out: TensorInfo, windows: Windows, geometry: number) => void,
): TensorInfo {
  const windows = windowsOf(backend, places)
  const out = zeros(backend, shape)
  windows.use((geometry) => {
    add(out, windows, geometry)
  })
  return out
}

function zeros(backend: WasmModule, shape: readonly number[]): TensorInfo {
  const out = backend.makeOutput(shape, 'float32')
  backend.typedArrayFromHeap(out).fill(0)
  return out
}

/** The number of bytes of windows that are processed together, so that they fit the cache of a core. */
const PART = 2 ** 17
/** The smallest number of windows of a part, because each part reads the whole filter. */
const LEAST = 64

type Windows = ReturnType<typeof windowsOf>

function windowsOf(backend: WasmModule, places: Places) {
  const heap = heapOf(backend)
  /** The number of windows in all images together. */
  const count = places.batchSize * places.outHeight * places.outWidth
  /** The number of values in one window. */
  const values = places.filterHeight * places.filterWidth * places.inChannels
  const numbers = [
    places.inHeight,
    places.inWidth,
    places.inChannels,
    places.outHeight,
    places.outWidth,
    places.filterHeight,
    places.filterWidth,
    places.strideHeight,
    places.strideWidth,
    places.padInfo.top,
    places.padInfo.left,
    // Room for the current image, row and column.
    ...[0, 0, 0],
  ]
  /**
   * Calls `run` with the address of a `Geometry` (kernels/geometry.as.ts) of these windows, and that of
   * `bytes` more bytes. Does not call it if there are no windows.
   */
  const use = (run: (geometry: number, memory: number) => void, bytes = 0) => {
    if (count === 0) return
    const size = 4 * numbers.length
    const at = heap.allocate(size + bytes)
    try {
      heap.ints(at, numbers.length).set(numbers)
      run(at, at + size)
    } finally {
      heap.free(at)
    }
  }
  return {
    heap,
    count,
    values,
    use,
    /** Calls `run` for ranges of windows that fit the cache, one after the other. */
    forParts(run: (first: number, last: number, geometry: number, patches: number) => void) {
      const fitting = Math.max(LEAST, Math.floor(PART / (4 * values)))
      const most = Math.min(count, fitting)
      use(
        (geometry, patches) => {
          for (let first = 0; first < count; first += most) {
            run(first, Math.min(count, first + most), geometry, patches)
          }
        },
        4 * values * most,
      )
    },
  }
}
