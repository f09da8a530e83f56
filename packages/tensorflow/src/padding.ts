import type { NamedAttrMap, TensorInfo } from '@tensorflow/tfjs-core'
import {
  type Border,
  borderOf,
  correctVolumes,
  type KernelCall,
  padded,
  paddedShape,
  type Places,
  replaceKernel,
  reshaped,
  runKernel,
  type Shape,
  type Tensor,
  tf,
  type WindowAttributes,
  windowPlaces,
  withoutBorder,
} from '@tsrun/training/backends'

type Inputs = Readonly<Record<string, TensorInfo>>

/** A kernel call with numeric padding. */
interface Call {
  readonly kernelName: string
  readonly inputs: Inputs
  /** The attributes of the call without padding. */
  readonly attrs: NamedAttrMap
  readonly border: Border
}

/**
 * Adds numeric padding to convolutions, pooling and their gradients on the tensorflow backend, by padding
 * the images. tfjs-node supports only `same` and `valid`, except in the forward pass of convolutions.
 */
export function installPadding(): void {
  for (const name of ['Conv2D', 'FusedConv2D', 'Conv3D']) correctSingleColumns(name)
  correctUnevenPoints()
  const images = ['Conv2D', 'FusedConv2D', 'DepthwiseConv2dNative', 'FusedDepthwiseConv2D']
  const filters = ['Conv2DBackpropFilter', 'DepthwiseConv2dNativeBackpropFilter']
  for (const name of [...images, ...filters]) install(name, ofImages)
  install('Conv2DBackpropInput', inputGradient)
  install('DepthwiseConv2dNativeBackpropInput', inputGradient)
  install('MaxPool', largest)
  install('MaxPoolGrad', (call) => poolGradient(call, -Infinity))
  install('AvgPool', (call) => tf.div(ofImages(call), partsInside(call)))
  install('AvgPoolGrad', (call) => {
    const dy = runKernel('RealDiv', { a: call.inputs['dy']!, b: partsInside(call) })
    return poolGradient({ ...call, inputs: { ...call.inputs, dy } }, 0)
  })
  correctVolumes('tensorflow')
}

/**
 * Adds a channel of zeros to convolutions with one channel, a stride, and one column of outputs. On CPUs
 * with AVX-512, oneDNN computes their second and later rows from wrong values.
 */
function correctSingleColumns(kernelName: string): void {
  type Call = KernelCall<'x' | 'filter', WindowAttributes>
  replaceKernel<Call>(kernelName, 'tensorflow', (original) => (call) => {
    const { x, filter } = call.inputs
    const { strides, pad, dataFormat } = call.attrs
    const [width, channels] = x.shape.slice(-2) as [number, number]
    if (channels !== 1 || dataFormat === 'NCHW' || typeof strides === 'number')
      return original(call)
    const stride = strides.at(-1)!
    const last = pad === 'same' ? width - 1 : width - filter.shape.at(-3)!
    if (stride === 1 || stride <= last) return original(call)
    const along = (axis: number, { shape }: TensorInfo): Border =>
      shape.map((_, i) => [0, i === shape.length + axis ? 1 : 0])
    return tf.tidy(() => {
      const inputs = { x: padded(x, along(-1, x)), filter: padded(filter, along(-2, filter)) }
      return original({ ...call, inputs: { ...call.inputs, ...inputs } }) as Tensor
    })
  })
}

/**
 * Takes the points that strides select before the gradient of a filter of 1 x 1, if the strides of rows and
 * columns differ. On CPUs with AVX-512, oneDNN otherwise writes beyond its memory for some sizes.
 */
function correctUnevenPoints(): void {
  type Call = KernelCall<'x' | 'dy', WindowAttributes>
  replaceKernel<Call>('Conv2DBackpropFilter', 'tensorflow', (original) => (call) => {
    const { inputs, attrs } = call
    const { strides, pad, dataFormat, filterShape } = attrs
    const isUneven = typeof strides !== 'number' && strides[0] !== strides[1]
    const isPoint = filterShape![0] === 1 && filterShape![1] === 1
    if (!isUneven || !isPoint || typeof pad !== 'string' || dataFormat === 'NCHW') {
      return original(call)
    }
    return tf.tidy(() => {
      const x = reshaped(inputs.x, inputs.x.shape)
      const taken = tf.stridedSlice(x, [0, 0, 0, 0], x.shape, [1, ...strides, 1])
      const points: Call = {
        ...call,
        inputs: { ...inputs, x: taken },
        attrs: { ...attrs, strides: 1 },
      }
      return original(points) as Tensor
    })
  })
}

function install(kernelName: string, compute: (call: Call) => Tensor): void {
  replaceKernel(kernelName, 'tensorflow', (original) => (call) => {
    const attrs = call.attrs as unknown as WindowAttributes
    const isDepthwise = kernelName.includes('Depthwise')
    const { strides } = attrs
    const isUneven = isDepthwise && Array.isArray(strides) && strides[0] !== strides[1]
    if ((typeof attrs.pad === 'string' && !isUneven) || attrs.dataFormat === 'NCHW') {
      return original(call)
    }
    const inputs = call.inputs as Inputs
    const info = windowPlaces(inputs, attrs, isDepthwise)
    const border = borderOf(info)
    const without = { ...call.attrs, pad: 'valid' }
    const padless = { kernelName, inputs, attrs: without, border }
    return tf.tidy(() => (isUneven ? withUnevenStrides(compute, padless, info) : compute(padless)))
  })
}

/**
 * Computes a depthwise convolution with different strides for rows and columns: convolves with stride 1,
 * and keeps the results at the strides. TensorFlow supports such strides only with oneDNN, which it does
 * not use on every CPU.
 */
function withUnevenStrides(
  compute: (call: Call) => Tensor,
  { inputs, attrs, ...rest }: Call,
  info: Places,
): Tensor {
  const strides = [1, info.strideHeight, info.strideWidth, 1]
  const call = { ...rest, attrs: { ...attrs, strides: [1, 1] } }
  const { dy } = inputs
  if (dy === undefined) {
    const all = compute({ ...call, inputs })
    const end = info.outShape.map((size, axis) => (size - 1) * strides[axis]! + 1)
    const begin = end.map(() => 0)
    return runKernel('StridedSlice', { x: all }, { ...NO_MASKS, begin, end, strides })
  }
  // Set the gradient to zero at the positions that the strides skip.
  const [batch, height, width, channels] = dy.shape as Shape
  const { strideHeight, strideWidth } = info
  const split = reshaped(dy, [batch, height, 1, width, 1, channels])
  const after = [0, 0, strideHeight - 1, 0, strideWidth - 1, 0].map((zeros): [number, number] => [
    0,
    zeros,
  ])
  const apart = reshaped(padded(split, after), [
    ...[batch, height * strideHeight, width * strideWidth, channels],
  ])
  const [rows, columns] = rest.border.slice(1, 3).map(([before, beyond]) => before + beyond)
  const size = [
    ...[batch, info.inHeight + rows! - info.effectiveFilterHeight + 1],
    ...[info.inWidth + columns! - info.effectiveFilterWidth + 1, channels],
  ]
  const missing = size.map((all, axis): [number, number] => [0, all - apart.shape[axis]!])
  const every = padded(apart, missing)
  return compute({ ...call, inputs: { ...inputs, dy: every } })
}

const NO_MASKS = { beginMask: 0, endMask: 0, ellipsisMask: 0, newAxisMask: 0, shrinkAxisMask: 0 }

function ofImages({ kernelName, inputs, attrs, border }: Call, value = 0): Tensor {
  return runKernel(kernelName, { ...inputs, x: padded(inputs['x']!, border, value) }, attrs)
}

/** Max-pools. A window of only -Infinity gives -Infinity instead of TensorFlow's lowest float. */
function largest(call: Call): Tensor {
  const values = ofImages(call, -Infinity)
  return tf.where(tf.equal(values, LOWEST), -Infinity, values)
}

const LOWEST = -(2 - 2 ** -23) * 2 ** 127

function inputGradient({ kernelName, inputs, attrs, border }: Call): Tensor {
  const inputShape = paddedShape(attrs['inputShape'] as Shape, border)
  return withoutBorder(runKernel(kernelName, inputs, { ...attrs, inputShape }), border)
}

function poolGradient({ kernelName, inputs, attrs, border }: Call, value: number): Tensor {
  const { input } = inputs
  const larger = { ...inputs, input: padded(input!, border, value) }
  return withoutBorder(runKernel(kernelName, larger, attrs), border)
}

/** Returns the fraction of each window that lies inside the image. Average pooling divides by it. */
function partsInside({ inputs, attrs, border }: Call): Tensor {
  const { shape } = inputs['x'] ?? inputs['input']!
  const ones = padded(tf.ones([1, ...shape.slice(1, -1), 1]), border)
  return runKernel('AvgPool', { x: ones }, attrs)
}
