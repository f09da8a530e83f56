import type { backend_util, KernelFunc, TensorInfo } from '@tensorflow/tfjs-core'
import { sizeOf } from '../../tfjs/host-arrays.ts'
import { replaceKernel, tf } from '../../tfjs/tfjs.ts'
import { heapOf, type WasmHeap } from './heap.ts'
import type { WasmModule } from './tfjs-wasm.ts'

type Shape = [number, number, number, number]
type Size = Parameters<typeof backend_util.computeConv2DInfo>[2]
type Places = ReturnType<typeof backend_util.computePool2DInfo>

interface Attributes {
  readonly strides: Size
  readonly pad: Parameters<typeof backend_util.computeConv2DInfo>[4]
  readonly dimRoundingMode?: 'floor' | 'round' | 'ceil'
  readonly dilations?: Size
  readonly dataFormat?: string
  /** Present only if the kernel is a fused convolution. */
  readonly activation?: string
  /** Present only if the kernel computes the gradient of a filter. */
  readonly filterShape: Shape
  /** Present only if the kernel computes the gradient of the images. */
  readonly inputShape: Shape
  /** Present only if the kernel is a pooling kernel. */
  readonly filterSize: Size
}

interface Call<K extends string> {
  readonly inputs: Readonly<Record<K, TensorInfo>>
  readonly attrs: Attributes
  readonly backend: WasmModule
}

interface Convolution extends Omit<Call<'x' | 'filter'>, 'inputs'> {
  readonly inputs: Readonly<Record<'x' | 'filter', TensorInfo>> & { readonly bias?: TensorInfo }
}

/**
 * Replaces convolutions, with and without a bias and an activation, by products with the values of all
 * windows. XNNPACK packs the filter again after every update, and computes the padding `same` wrongly if
 * the stride is larger than the kernel. Dilations, other activations and other layouts still use the
 * original kernels.
 */
export function installConvolutions(): void {
  for (const kernelName of ['Conv2D', 'FusedConv2D']) {
    replaceKernel(kernelName, 'wasm', (original) => (call) => {
      const convolution = call as unknown as Convolution
      return isPlain(convolution) ? convolve(convolution) : original(call)
    })
  }
}

function isPlain({ inputs, attrs }: Convolution): boolean {
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
function convolve({ inputs, attrs, backend }: Convolution): TensorInfo {
  const { x, filter, bias } = inputs
  const places = convolution(x.shape, filter.shape, attrs)
  const windows = new Windows(backend, places)
  const outputs = places.outChannels
  const out = backend.makeOutput(places.outShape, 'float32')
  const { heap } = windows
  const start = bias === undefined ? 0 : heap.addressOf(bias)
  windows.forParts(0, ({ first, last }, { geometry, patches }) => {
    heap.kernels.take_windows(patches, heap.addressOf(x), first, last, geometry)
    heap.multiply(
      heap.addressOf(out) + 4 * first * outputs,
      { at: patches, transposed: false },
      { at: heap.addressOf(filter), transposed: false },
      [last - first, outputs, windows.values],
      { start, relu: attrs.activation === 'relu' },
    )
  })
  return out
}

/**
 * Adds the gradients of convolutions that the wasm backend lacks. Replaces the gradients of images and of
 * pooling, because the originals are scalar loops that take 15 to 50 times as long as the forward pass.
 * The original gradient of max pooling is also wrong for windows without a positive value, and writes
 * outside of its tensor.
 */
export function installWindowGradients(): void {
  install('Conv2DBackpropFilter', filterGradient)
  install('Conv2DBackpropInput', inputGradient)
  install('DepthwiseConv2dNativeBackpropFilter', depthwiseFilterGradient)
  install('DepthwiseConv2dNativeBackpropInput', depthwiseInputGradient)
  install('MaxPoolGrad', maxPoolGradient)
  install('AvgPoolGrad', averagePoolGradient)
}

function install<K extends string>(
  kernelName: string,
  compute: (call: Call<K>) => TensorInfo,
): void {
  const existing = tf.getKernel(kernelName, 'wasm') as unknown
  if (existing !== undefined) tf.unregisterKernel(kernelName, 'wasm')
  const kernelFunc = compute as unknown as KernelFunc
  tf.registerKernel({ kernelName, backendName: 'wasm', kernelFunc })
}

/** Computes the gradient of the filter: windows^T dy, with one row of values for each window. */
function filterGradient({ inputs, attrs, backend }: Call<'x' | 'dy'>): TensorInfo {
  const { x, dy } = inputs
  const { filterShape } = attrs
  const windows = new Windows(backend, convolution(x.shape, filterShape, attrs))
  const outputs = filterShape[3]
  const size = sizeOf(filterShape)
  const out = zeros(backend, filterShape)
  const { heap } = windows
  windows.forParts(4 * size, ({ first, last }, { geometry, patches, block }) => {
    heap.kernels.take_windows(patches, heap.addressOf(x), first, last, geometry)
    heap.multiply(
      block,
      { at: patches, transposed: true },
      { at: heap.addressOf(dy) + 4 * first * outputs, transposed: false },
      [windows.values, outputs, last - first],
    )
    heap.kernels.add_scaled(heap.addressOf(out), heap.addressOf(out), 1, block, size)
  })
  return out
}

/**
 * Computes the gradient of the images: dy filter^T gives the gradient of each window, which is added to
 * the image at the position of the window.
 */
function inputGradient({ inputs, attrs, backend }: Call<'dy' | 'filter'>): TensorInfo {
  const { dy, filter } = inputs
  const windows = new Windows(backend, convolution(attrs.inputShape, filter.shape, attrs))
  const outputs = filter.shape[3]!
  const out = zeros(backend, attrs.inputShape)
  const { heap } = windows
  windows.forParts(0, ({ first, last }, { geometry, patches }) => {
    heap.multiply(
      patches,
      { at: heap.addressOf(dy) + 4 * first * outputs, transposed: false },
      { at: heap.addressOf(filter), transposed: true },
      [last - first, windows.values, outputs],
    )
    heap.kernels.add_windows(heap.addressOf(out), patches, first, last, geometry)
  })
  return out
}

function depthwiseFilterGradient({ inputs, attrs, backend }: Call<'x' | 'dy'>): TensorInfo {
  const { x, dy } = inputs
  const { filterShape } = attrs
  const windows = new Windows(backend, convolution(x.shape, filterShape, attrs, true))
  const out = zeros(backend, filterShape)
  const { heap, count } = windows
  windows.use((geometry) => {
    const [dw, images, slopes] = [out, x, dy].map((tensor) => heap.addressOf(tensor))
    const [multiplier] = filterShape.slice(3)
    heap.kernels.depthwise_filter_gradient(dw!, images!, slopes!, count, multiplier!, geometry)
  })
  return out
}

function depthwiseInputGradient({ inputs, attrs, backend }: Call<'dy' | 'filter'>): TensorInfo {
  const { dy, filter } = inputs
  const windows = new Windows(backend, convolution(attrs.inputShape, filter.shape, attrs, true))
  const out = zeros(backend, attrs.inputShape)
  const { heap, count } = windows
  windows.use((geometry) => {
    const [dx, weights, slopes] = [out, filter, dy].map((tensor) => heap.addressOf(tensor))
    const [multiplier] = filter.shape.slice(3)
    heap.kernels.depthwise_input_gradient(dx!, weights!, slopes!, count, multiplier!, geometry)
  })
  return out
}

function maxPoolGradient({ inputs, attrs, backend }: Call<'dy' | 'input'>): TensorInfo {
  const { dy, input } = inputs
  const windows = new Windows(backend, pooling(input.shape, attrs))
  const out = zeros(backend, input.shape)
  const { heap, count } = windows
  windows.use((geometry) => {
    const [dx, images, slopes] = [out, input, dy].map((tensor) => heap.addressOf(tensor))
    heap.kernels.max_pool_gradient(dx!, images!, slopes!, count, geometry)
  })
  return out
}

/**
 * Computes the gradient of average pooling. Divides by the size of the whole window, even at the border;
 * `correctAveragePoolGradients` corrects that.
 */
function averagePoolGradient({ inputs, attrs, backend }: Call<'dy' | 'input'>): TensorInfo {
  const { dy, input } = inputs
  const places = pooling(input.shape, attrs)
  const windows = new Windows(backend, places)
  const out = zeros(backend, input.shape)
  const { heap, count } = windows
  const factor = 1 / (places.filterHeight * places.filterWidth)
  windows.use((geometry) => {
    const [dx, slopes] = [out, dy].map((tensor) => heap.addressOf(tensor))
    heap.kernels.average_pool_gradient(dx!, slopes!, factor, count, geometry)
  })
  return out
}

function convolution(
  images: readonly number[],
  filter: readonly number[],
  { strides, pad, dimRoundingMode }: Attributes,
  depthwise = false,
): Places {
  const [x, w] = [images, filter] as [Shape, Shape]
  const { computeConv2DInfo } = tf.backend_util
  return computeConv2DInfo(x, w, strides, 1, pad, dimRoundingMode, depthwise)
}

function pooling(images: readonly number[], attrs: Attributes): Places {
  const { filterSize, strides, pad, dimRoundingMode } = attrs
  const { computePool2DInfo } = tf.backend_util
  return computePool2DInfo(images as Shape, filterSize, strides, 1, pad, dimRoundingMode)
}

function zeros(backend: WasmModule, shape: readonly number[]): TensorInfo {
  const out = backend.makeOutput(shape, 'float32')
  backend.typedArrayFromHeap(out).fill(0)
  return out
}

/**
 * The largest number of bytes of windows that are processed together, so that they fit the cache of a
 * core.
 */
const PART = 2 ** 20

class Windows {
  readonly heap: WasmHeap
  /** The number of windows in all images together. */
  readonly count: number
  /** The number of values in one window. */
  readonly values: number
  readonly #numbers: readonly number[]

  constructor(backend: WasmModule, places: Places) {
    this.heap = heapOf(backend)
    this.count = places.batchSize * places.outHeight * places.outWidth
    this.values = places.filterHeight * places.filterWidth * places.inChannels
    this.#numbers = [
      ...[places.inHeight, places.inWidth, places.inChannels],
      ...[places.outHeight, places.outWidth],
      ...[places.filterHeight, places.filterWidth],
      ...[places.strideHeight, places.strideWidth],
      ...[places.padInfo.top, places.padInfo.left],
    ]
  }

  /** Calls `run` with the address of a `Geometry` (kernels/windows.as.ts) of these windows. */
  use(run: (geometry: number) => void): void {
    this.#withMemory(0, run)
  }

  /**
   * Calls `run` for ranges of windows that fit the cache, one after the other.
   *
   * @param bytes - the size of the block of memory passed to `run`
   */
  forParts(
    bytes: number,
    run: (
      part: { readonly first: number; readonly last: number },
      at: { readonly geometry: number; readonly patches: number; readonly block: number },
    ) => void,
  ): void {
    const most = Math.max(1, Math.min(this.count, Math.floor(PART / (4 * this.values))))
    const patchBytes = 4 * this.values * most
    this.#withMemory(patchBytes + bytes, (geometry, patches) => {
      for (let first = 0; first < this.count; first += most) {
        const last = Math.min(this.count, first + most)
        run({ first, last }, { geometry, patches, block: patches + patchBytes })
      }
    })
  }

  #withMemory(bytes: number, run: (geometry: number, memory: number) => void): void {
    const { heap } = this
    const size = 4 * this.#numbers.length
    const at = heap.allocate(size + bytes)
    try {
      heap.ints(at, this.#numbers.length).set(this.#numbers)
      run(at, at + size)
    } finally {
      heap.free(at)
    }
  }
}
