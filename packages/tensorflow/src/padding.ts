import type { NamedAttrMap, TensorInfo } from '@tensorflow/tfjs-core'
import {
  type Border,
  borderOf,
  correctVolumes,
  replaceKernel,
  runKernel,
  type Shape,
  type Tensor,
  tf,
  type WindowAttributes,
  windowPlaces,
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
  const images = [
    'Conv2D',
    'FusedConv2D',
    'DepthwiseConv2dNative',
    'FusedDepthwiseConv2D',
    'Conv3D',
  ]
  const filters = ['Conv2DBackpropFilter', 'DepthwiseConv2dNativeBackpropFilter']
  for (const name of [...images, ...filters, 'Conv3DBackpropFilterV2']) install(name, ofImages)
  install('Conv2DBackpropInput', inputGradient)
  install('DepthwiseConv2dNativeBackpropInput', inputGradient)
  install('Conv3DBackpropInputV2', inputGradient)
  for (const name of ['MaxPool', 'MaxPool3D']) {
    install(name, largest)
    install(`${name}Grad`, (call) => poolGradient(call, -Infinity))
  }
  install('AvgPool', (call) => tf.div(ofImages(call), partsInside(call)))
  // Like the cpu backend, return 0 for a window without values.
  install('AvgPool3D', (call) => tf.divNoNan(ofImages(call), partsInside(call)))
  for (const name of ['AvgPoolGrad', 'AvgPool3DGrad']) {
    install(name, (call) => {
      const dy = runKernel('RealDiv', { a: call.inputs['dy']!, b: partsInside(call) })
      return poolGradient({ ...call, inputs: { ...call.inputs, dy } }, 0)
    })
  }
  correctVolumes('tensorflow')
}

function install(kernelName: string, compute: (call: Call) => Tensor): void {
  replaceKernel(kernelName, 'tensorflow', (original) => (call) => {
    const attrs = call.attrs as unknown as WindowAttributes
    if (typeof attrs.pad === 'string' || attrs.dataFormat === 'NCHW') return original(call)
    const inputs = call.inputs as Inputs
    const border = borderOf(windowPlaces(inputs, attrs, kernelName.includes('Depthwise')))
    return tf.tidy(() =>
      compute({ kernelName, inputs, attrs: { ...call.attrs, pad: 'valid' }, border }),
    )
  })
}

function ofImages({ kernelName, inputs, attrs, border }: Call, value = 0): Tensor {
  return runKernel(kernelName, { ...inputs, x: padded(inputs['x']!, border, value) }, attrs)
}

/** Returns -Infinity for a window without values, where TensorFlow returns the lowest float. */
function largest(call: Call): Tensor {
  const values = ofImages(call, -Infinity)
  const inside = partsInside(call)
  const lowest = tf.where(tf.equal(inside, 0), -Infinity, tf.zerosLike(inside))
  return tf.add(values, lowest)
}

function inputGradient({ kernelName, inputs, attrs, border }: Call): Tensor {
  const shape = attrs['inputShape'] as Shape
  const inputShape = shape.map((size, axis) => size + border[axis]![0] + border[axis]![1])
  return inside(runKernel(kernelName, inputs, { ...attrs, inputShape }), border, shape)
}

function poolGradient({ kernelName, inputs, attrs, border }: Call, value: number): Tensor {
  const { input } = inputs
  const larger = { ...inputs, input: padded(input!, border, value) }
  return inside(runKernel(kernelName, larger, attrs), border, input!.shape)
}

/** Returns the fraction of each window inside of the image, by which average pooling divides. */
function partsInside({ inputs, attrs, border }: Call): Tensor {
  const { shape } = inputs['x'] ?? inputs['input']!
  const ones = padded(tf.ones([1, ...shape.slice(1, -1), 1]), border, 0)
  return runKernel(shape.length === 5 ? 'AvgPool3D' : 'AvgPool', { x: ones }, attrs)
}

/** Adds a border. Removes values where the border is negative. */
function padded(x: TensorInfo, border: Border, constantValue: number): Tensor {
  const paddings = border.map(([before, beyond]): [number, number] => [before, Math.max(0, beyond)])
  const size = x.shape.map((length, axis) => length + Math.min(0, border[axis]![1]))
  const isSmaller = size.some((length, axis) => length < x.shape[axis]!)
  const begin = size.map(() => 0)
  const used = isSmaller ? runKernel('Slice', { x }, { begin, size }) : x
  return runKernel('PadV2', { x: used }, { paddings, constantValue })
}

/** Removes a border from gradients. Values that the border removed have no gradient. */
function inside(x: Tensor, border: Border, shape: readonly number[]): Tensor {
  const begin = border.map(([before]) => before)
  const size = shape.map((length, axis) => length + Math.min(0, border[axis]![1]))
  const used = runKernel('Slice', { x }, { begin, size })
  const paddings = shape.map((length, axis): [number, number] => [0, length - size[axis]!])
  if (paddings.every(([, missing]) => missing === 0)) return used
  return runKernel('PadV2', { x: used }, { paddings, constantValue: 0 })
}
