import type { backend_util, TensorInfo } from '@tensorflow/tfjs-core'
import { argumentError } from '@tsrun/core'
import { runKernel, tf, type Tensor } from './tfjs.ts'

/** The shape of images [batch, height, width, channels], or of a filter. */
export type Shape = [number, number, number, number]
/** The positions of windows in images. */
export type Places = ReturnType<typeof backend_util.computePool2DInfo>
/** The padding before and after each axis. */
export type Border = [number, number][]
type Size = Parameters<typeof backend_util.computePool2DInfo>[1]

/** The attributes that determine the windows of a convolution, a pooling, or a gradient of either. */
export interface WindowAttributes {
  readonly strides: Size
  readonly pad: Parameters<typeof backend_util.computePool2DInfo>[4]
  readonly dilations?: Size
  readonly dimRoundingMode?: 'floor' | 'round' | 'ceil'
  readonly dataFormat?: string
  /** Present only if the kernel is a fused convolution. */
  readonly activation?: string
  /** Present only if the kernel computes the gradient of a filter. */
  readonly filterShape?: Shape
  /** Present only if the kernel computes the gradient of the images. */
  readonly inputShape?: Shape
  /** Present only if the kernel is a pooling kernel. */
  readonly filterSize?: Size
  /** Whether a pooling follows a ReLU and its gradient must include the gradient of the ReLU. */
  readonly isRectified?: boolean
}

/** Returns where the windows of a pooling kernel are. @throws ERR_TSR_ARGUMENT */
export function poolingPlaces(images: readonly number[], attrs: WindowAttributes): Places {
  const { filterSize, strides, pad, dimRoundingMode } = attrs
  const { computePool2DInfo } = tf.backend_util
  return fitting(computePool2DInfo(images as Shape, filterSize!, strides, 1, pad, dimRoundingMode))
}

/** Returns where the windows of a convolution are. @throws ERR_TSR_ARGUMENT */
export function convolutionPlaces(
  images: readonly number[],
  filter: readonly number[],
  { strides, dilations = 1, pad, dimRoundingMode }: WindowAttributes,
  isDepthwise = false,
): Places {
  const [x, w] = [images, filter] as [Shape, Shape]
  const { computeConv2DInfo } = tf.backend_util
  return fitting(computeConv2DInfo(x, w, strides, dilations, pad, dimRoundingMode, isDepthwise))
}

/** If the window is larger than the image, TensorFlow.js computes a negative number of windows. */
function fitting(places: Places): Places {
  const { outHeight, outWidth, inHeight, inWidth, filterHeight, filterWidth } = places
  if (outHeight >= 0 && outWidth >= 0) return places
  throw argumentError(
    'the window',
    `${filterHeight} x ${filterWidth}`,
    `one that fits images of ${inHeight} x ${inWidth} with their padding`,
  )
}

/** Returns the positions of the windows of a convolution, a pooling, or a gradient of either. */
export function windowPlaces(
  inputs: Readonly<Record<string, Pick<TensorInfo, 'shape'> | undefined>>,
  attrs: WindowAttributes,
  isDepthwise = false,
): Places {
  const images = attrs.inputShape ?? (inputs['x'] ?? inputs['input']!).shape
  if (attrs.filterSize !== undefined) return poolingPlaces(images, attrs)
  const filter = attrs.filterShape ?? inputs['filter']!.shape
  return convolutionPlaces(images, filter, attrs, isDepthwise)
}

/** The windows along one axis. The window includes its gaps if it is dilated. */
export interface Axis {
  readonly size: number
  readonly window: number
  readonly stride: number
  readonly before: number
  readonly outputs: number
}

export function axesOf(places: Places): readonly [height: Axis, width: Axis] {
  const height = {
    size: places.inHeight,
    window: places.effectiveFilterHeight,
    stride: places.strideHeight,
    before: places.padInfo.top,
    outputs: places.outHeight,
  }
  const width = {
    size: places.inWidth,
    window: places.effectiveFilterWidth,
    stride: places.strideWidth,
    before: places.padInfo.left,
    outputs: places.outWidth,
  }
  return [height, width]
}

/**
 * Returns the padding of images up to the end of the last window. The padding is negative for an axis that
 * has room for another window: if the padding is a number, TensorFlow.js takes the number of windows of
 * both axes from the first axis.
 */
export function borderOf(places: Places): Border {
  const padding = axesOf(places).map(({ size, window, stride, before, outputs }) => {
    const beyond = (outputs - 1) * stride + window - before - size
    return [before, beyond <= -stride ? beyond : Math.max(0, beyond)] as [number, number]
  })
  return [[0, 0], ...padding, [0, 0]]
}

/** Returns numeric padding for the same windows when sizes are rounded down; undefined if there is none. */
export function withPadding<A extends WindowAttributes>(attrs: A, places: Places): A | undefined {
  const border = borderOf(places)
  if (border.some(([, beyond]) => beyond < 0)) return undefined
  return { ...attrs, pad: border as WindowAttributes['pad'], dimRoundingMode: 'floor' }
}

/** Adds a border of `value` to a tensor. Removes values where the border is negative. */
export function padded(x: TensorInfo, border: Border, value = 0): Tensor {
  const paddings = border.map((sides) => sides.map((width) => Math.max(0, width)))
  const begin = border.map(([before]) => Math.max(0, -before))
  const size = x.shape.map((length, axis) => {
    return length + Math.min(0, border[axis]![0]) + Math.min(0, border[axis]![1])
  })
  const pad = (x: TensorInfo) => runKernel('PadV2', { x }, { paddings, constantValue: value })
  if (size.every((length, axis) => length === x.shape[axis])) return pad(x)
  const part = runKernel('Slice', { x }, { begin, size })
  return paddings.flat().every((width) => width === 0) ? part : pad(part)
}

/** Returns the shape of a tensor to which `padded` has added a border. */
export function paddedShape(shape: readonly number[], border: Border): number[] {
  return shape.map((size, axis) => size + border[axis]![0] + border[axis]![1])
}

/** Removes a border from a gradient. Values that the border removed have a gradient of zero. */
export function withoutBorder(x: TensorInfo, border: Border): Tensor {
  return padded(
    x,
    border.map(([before, beyond]) => [-before, -beyond]),
  )
}

/** Returns a tensor with the values of `x`, and another shape. */
export function reshaped(x: TensorInfo, shape: number[]): Tensor {
  return runKernel('Reshape', { x }, { shape })
}
