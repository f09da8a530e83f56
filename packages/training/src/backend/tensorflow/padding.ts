import type { NamedAttrMap, TensorInfo } from '@tensorflow/tfjs-core'
import { replaceKernel, runKernel, tf, type Tensor } from '../../tfjs/tfjs.ts'
import {
  borderOf,
  convolutionPlaces,
  poolingPlaces,
  type Border,
  type Shape,
  type WindowAttributes,
} from '../../tfjs/window-places.ts'

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
}

function install(kernelName: string, compute: (call: Call) => Tensor): void {
  replaceKernel(kernelName, 'tensorflow', (original) => (call) => {
    const attrs = call.attrs as unknown as WindowAttributes
    if (typeof attrs.pad === 'string' || attrs.dataFormat === 'NCHW') return original(call)
    const inputs = call.inputs as Inputs
    const { inputShape, filterShape, filterSize } = attrs
    const images: readonly number[] = inputShape ?? (inputs['x'] ?? inputs['input']!).shape
    const isDepthwise = kernelName.includes('Depthwise')
    const places =
      filterSize === undefined
        ? convolutionPlaces(images, filterShape ?? inputs['filter']!.shape, attrs, isDepthwise)
        : poolingPlaces(images, attrs)
    const border = borderOf(places)
    if (border === undefined) return original(call)
    const without = { ...call.attrs, pad: 'valid' }
    return tf.tidy(() => compute({ kernelName, inputs, attrs: without, border }))
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
  return runKernel('AvgPool', { x: ones }, attrs)
}

function padded(x: TensorInfo, paddings: Border, constantValue: number): Tensor {
  return runKernel('PadV2', { x }, { paddings, constantValue })
}

/** Removes the border from gradients. */
function inside(x: Tensor, border: Border, size: number[]): Tensor {
  return runKernel('Slice', { x }, { begin: border.map(([before]) => before), size })
}
