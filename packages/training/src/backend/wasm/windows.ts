import type { TensorInfo } from '@tensorflow/tfjs-core'
import { sizeOf } from '../../tfjs/host-arrays.ts'
import { replaceKernel, runKernel, type Kernel, type KernelCall } from '../../tfjs/tfjs.ts'
import {
  borderOf,
  convolutionPlaces,
  poolingPlaces,
  withPadding,
  type Places,
  type WindowAttributes,
} from '../../tfjs/window-places.ts'
import { hasNaN, heapOf, type WasmModule } from './heap.ts'
import { activated, ACTIVATIONS } from './matmul.ts'
import { run } from './passes.ts'
import { replaceOrRunOnCpu, withCopies } from './replaced-kernels.ts'

type Call<K extends string> = KernelCall<K, WindowAttributes, WasmModule>

/**
 * Replaces convolutions by products with the values of all windows. XNNPACK packs the filter again after
 * every update, and computes the padding `same` wrongly if the stride is larger than the kernel. Replaces
 * max pooling: XNNPACK replaces NaN by numbers, and always rounds the size of the output down.
 *
 * Adds the gradients of convolutions that the wasm backend lacks. Replaces the gradients of images and of
 * pooling, because the originals are scalar loops that take 15 to 50 times as long as the forward pass.
 * The original for max pooling is also wrong for windows without a positive value, and writes out of
 * bounds.
 */
export function installWindows(): void {
  for (const kernelName of ['Conv2D', 'FusedConv2D']) {
    replaceOrRunOnCpu<Call<'x' | 'filter'>>(
      kernelName,
      (call) => activated(kernelName, call) ?? convolve(call),
    )
  }
  for (const kernelName of ['DepthwiseConv2dNative', 'FusedDepthwiseConv2D']) {
    replaceOrRunOnCpu<Call<'x' | 'filter'>>(
      kernelName,
      (call, original) =>
        activated(kernelName, call, { ...ACTIVATIONS, relu: 'Relu' }) ??
        convolveDepthwise(call, original),
    )
  }
  replaceOrRunOnCpu('AvgPool', averagePool)
  replaceOrRunOnCpu('MaxPool', maxPool)
  replaceKernel('Conv2DBackpropFilter', 'wasm', () => filterGradient)
  replaceKernel('Conv2DBackpropInput', 'wasm', () => inputGradient)
  replaceKernel('DepthwiseConv2dNativeBackpropFilter', 'wasm', () => depthwiseGradient)
  replaceKernel('DepthwiseConv2dNativeBackpropInput', 'wasm', () => depthwiseGradient)
  replaceKernel('MaxPoolGrad', 'wasm', () => maxPoolGradient)
  replaceKernel('AvgPoolGrad', 'wasm', () => averagePoolGradient)
}

/** Returns windows x filter, one row per window; undefined for other layouts and broadcast biases. */
function convolve({ inputs, attrs, backend }: Call<'x' | 'filter'>): TensorInfo | undefined {
  const { x, filter, bias } = inputs
  const isPossible =
    (attrs.dataFormat ?? 'NHWC') === 'NHWC' &&
    (bias === undefined || sizeOf(bias.shape) === filter.shape[3])
  if (!isPossible) return undefined
  const places = convolutionPlaces(x.shape, filter.shape, attrs)
  const windows = windowsOf(backend, places)
  const outputs = places.outChannels
  const out = backend.makeOutput(places.outShape, 'float32')
  const { heap } = windows
  const start = bias === undefined ? 0 : heap.addressOf(bias)
  windows.forParts((first, last, geometry, patches) => {
    heap.multiply(
      heap.addressOf(out) + 4 * first * outputs,
      windows.take(patches, x, first, last, geometry),
      { at: heap.addressOf(filter) },
      [last - first, outputs, windows.values],
      { start, relu: attrs.activation === 'relu' },
    )
  })
  return out
}

/**
 * Computes a depthwise convolution by XNNPACK with numeric padding: XNNPACK computes the padding `same`
 * wrongly if the stride is larger than the kernel, and always rounds the size of the output down. Returns
 * undefined if there is no such padding. Also returns undefined if there is no window, because XNNPACK
 * would write out of bounds.
 */
function convolveDepthwise(
  call: Call<'x' | 'filter'>,
  original: Kernel<Call<'x' | 'filter'>>,
): TensorInfo | TensorInfo[] | undefined {
  const { x, filter } = call.inputs
  const places = convolutionPlaces(x.shape, filter.shape, call.attrs, true)
  const attrs = withPadding(call.attrs, places)
  if (attrs === undefined || sizeOf(places.outShape) === 0) return undefined
  return withCopies({ ...call, attrs }, ['filter', 'bias'], original)
}

/**
 * Computes average pooling by XNNPACK with numeric padding, like `convolveDepthwise`. Also returns
 * undefined for dtypes other than float32; for NaN, which XNNPACK replaces by numbers; and if a window
 * may lie entirely in the padding, because XNNPACK does not write its result.
 */
function averagePool(
  call: Call<'x'>,
  original: Kernel<Call<'x'>>,
): TensorInfo | TensorInfo[] | undefined {
  const { x } = call.inputs
  const places = poolingPlaces(x.shape, call.attrs)
  const attrs = withPadding(call.attrs, places)
  const [, rows, columns] = borderOf(places)
  const isPossible =
    x.dtype === 'float32' &&
    attrs !== undefined &&
    sizeOf(places.outShape) > 0 &&
    Math.max(...rows!) < places.filterHeight &&
    Math.max(...columns!) < places.filterWidth &&
    !hasNaN(x)
  return isPossible ? original({ ...call, attrs }) : undefined
}

/** Computes max pooling. Returns undefined for dtypes other than float32. */
function maxPool({ inputs, attrs, backend }: Call<'x'>): TensorInfo | undefined {
  const { x } = inputs
  if (x.dtype !== 'float32') return undefined
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
    const { at, transposed } = windows.take(patches, x, first, last, geometry)
    heap.multiply(
      heap.addressOf(out),
      { at, transposed: !transposed },
      { at: heap.addressOf(dy) + 4 * first * outputs },
      [windows.values, outputs, last - first],
      { accumulates: true },
    )
  })
  return out
}

/** Computes dy filter^T, the gradient of each window, and adds it to the image at its place. */
function inputGradient({ inputs, attrs, backend }: Call<'dy' | 'filter'>): TensorInfo {
  const { dy, filter } = inputs
  const inputShape = attrs.inputShape!
  const windows = windowsOf(backend, convolutionPlaces(inputShape, filter.shape, attrs))
  const outputs = filter.shape[3]!
  const out = windows.sums(inputShape)
  const { heap, values } = windows
  // Transpose the filter once for all parts: products with a transposed operand are slower.
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

/** The codes of the gradients that `window_gradient` can compute (kernels/windows.as.ts). */
const [FILTER, IMAGES, AVERAGE] = [0, 1, 2] as const

/** Computes the gradient of the filter from `x`, or the gradient of the images from `filter`. */
function depthwiseGradient({ inputs, attrs, backend }: Call<'dy'>): TensorInfo {
  const { x, filter, dy } = inputs
  const images = x?.shape ?? attrs.inputShape!
  const weights = filter?.shape ?? attrs.filterShape!
  const places = convolutionPlaces(images, weights, attrs, true)
  const kind = x === undefined ? IMAGES : FILTER
  const windows = windowsOf(backend, places)
  const out = x === undefined ? windows.sums(images) : zeros(backend, weights)
  windows.use((at) => {
    run('window_gradient', [x ?? out, filter ?? out, dy], kind, 0, windows.count, weights[3]!, at)
  })
  return out
}

function maxPoolGradient({ inputs, attrs, backend }: Call<'dy' | 'input'>): TensorInfo {
  const { dy, input } = inputs
  const { use, sums, count } = windowsOf(backend, poolingPlaces(input.shape, attrs))
  const out = sums(input.shape)
  const least = attrs.isRectified === true ? 0 : -Infinity
  use((geometry) => {
    run('max_pool_gradient', [out, input, dy], count, geometry, least)
  })
  return out
}

/**
 * Computes the gradient of average pooling. Divides by the size of the whole window, even at the border;
 * `correctAveragePoolGradient` corrects that.
 */
function averagePoolGradient({ inputs, attrs, backend }: Call<'dy' | 'input'>): TensorInfo {
  const { dy, input } = inputs
  const places = poolingPlaces(input.shape, attrs)
  const factor = 1 / (places.filterHeight * places.filterWidth)
  const { use, sums, count } = windowsOf(backend, places)
  const out = sums(input.shape)
  use((geometry) => {
    run('window_gradient', [out, undefined, dy], AVERAGE, factor, count, 1, geometry)
  })
  return out
}

function zeros(backend: WasmModule, shape: readonly number[]): TensorInfo {
  const out = backend.makeOutput(shape, 'float32')
  backend.typedArrayFromHeap(out).fill(0)
  return out
}

/** The number of bytes of windows that are processed together, so that they fit the cache of a core. */
const PART = 2 ** 18
/** The smallest number of windows of a part, because each part reads the whole filter. */
const LEAST = 64

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
    places.dilationHeight,
    places.dilationWidth,
    places.padInfo.top,
    places.padInfo.left,
    // The kernels write the current image, row and column here.
    ...[0, 0, 0],
  ]
  /** Calls `run` with a `Geometry` and `bytes` bytes of scratch memory, unless there are no windows. */
  const use = (run: (geometry: number, memory: number) => void, bytes = 0) => {
    if (count === 0) return
    const size = 4 * numbers.length
    const at = heap.allocate(size + bytes)
    try {
      new Int32Array(backend.wasm.HEAPU8.buffer, at).set(numbers)
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
    /** Returns a tensor for the sums of kernels, which clear an image before its first window. */
    sums: (images: readonly number[]) =>
      count === 0 ? zeros(backend, images) : backend.makeOutput(images, 'float32'),
    /** Copies the values of windows to `patches`. Returns the matrix [windows, values]. */
    take(patches: number, x: TensorInfo, first: number, last: number, geometry: number) {
      const transposed = places.inChannels === 1 && places.strideWidth === 1
      const kernel = transposed ? 'take_single' : 'take_windows'
      heap.kernels[kernel](patches, heap.addressOf(x), first, last, geometry)
      return { at: patches, transposed }
    },
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
