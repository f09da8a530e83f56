import type { backend_util } from '@tensorflow/tfjs-core'
import { tf } from './tfjs.ts'

export type Shape = [number, number, number, number]
export type Places = ReturnType<typeof backend_util.computePool2DInfo>
type Size = Parameters<typeof backend_util.computePool2DInfo>[1]

/** The attributes of a convolution, a pooling or a gradient of these that place its windows. */
export interface WindowAttributes {
  readonly strides: Size
  readonly pad: Parameters<typeof backend_util.computePool2DInfo>[4]
  readonly dilations?: Size
  readonly dimRoundingMode?: 'floor' | 'round' | 'ceil'
  readonly dataFormat?: string
  /** Present only if the kernel computes the gradient of a filter. */
  readonly filterShape?: Shape
  /** Present only if the kernel computes the gradient of the images. */
  readonly inputShape?: Shape
  /** Present only if the kernel is a pooling kernel. */
  readonly filterSize?: Size
}

/** Returns where the windows of a pooling kernel are. */
export function poolingPlaces(images: readonly number[], attrs: WindowAttributes): Places {
  const { filterSize, strides, pad, dimRoundingMode } = attrs
  const { computePool2DInfo } = tf.backend_util
  return computePool2DInfo(images as Shape, filterSize!, strides, 1, pad, dimRoundingMode)
}

/** Returns where the windows of a convolution are. */
export function convolutionPlaces(
  images: readonly number[],
  filter: readonly number[],
  { strides, dilations = 1, pad, dimRoundingMode }: WindowAttributes,
  isDepthwise = false,
): Places {
  const [x, w] = [images, filter] as [Shape, Shape]
  const { computeConv2DInfo } = tf.backend_util
  return computeConv2DInfo(x, w, strides, dilations, pad, dimRoundingMode, isDepthwise)
}

/** Returns the attributes with numeric padding that gives the same windows with rounding down. */
export function withPadding<A extends WindowAttributes>(attrs: A, places: Places): A {
  const { top, left } = places.padInfo
  const rows = (places.outHeight - 1) * places.strideHeight + places.effectiveFilterHeight
  const columns = (places.outWidth - 1) * places.strideWidth + places.effectiveFilterWidth
  const pad: WindowAttributes['pad'] = [
    [0, 0],
    [top, Math.max(0, rows - places.inHeight - top)],
    [left, Math.max(0, columns - places.inWidth - left)],
    [0, 0],
  ]
  return { ...attrs, pad, dimRoundingMode: 'floor' }
}
