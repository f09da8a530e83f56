import type { NamedAttrMap } from '@tensorflow/tfjs-core'
import { argumentError } from '@tsrun/core'
import { gradientAlong, type Sources } from './array-gradients.ts'
import { replaceGradient, tf, type Tensor } from './tfjs.ts'
import {
  convolutionPlaces,
  poolingPlaces,
  withPadding,
  type Places,
  type Shape,
  type WindowAttributes,
} from './window-places.ts'

/**
 * Corrects the gradients of pooling and convolution with `dimRoundingMode` on all backends. The original
 * gradients ignore it, so they pass numeric padding for the same windows. Rejects the windows of volumes
 * for which the gradient kernel of the cpu backend is wrong.
 */
export function registerWindowGradients(): void {
  registerWindows('MaxPool', ([images], attrs) => poolingPlaces(images!, attrs))
  registerWindows('AvgPool', ([images], attrs) => poolingPlaces(images!, attrs))
  registerWindows('Conv2D', ([images, filter], attrs) => convolutionPlaces(images!, filter!, attrs))
  replaceGradient('MaxPool3D', (original) => (dy, saved, attrs) => {
    const size = [attrs['filterSize'] as number | number[]].flat()
    if (size[1] !== size[2] && ['cpu', 'wasm'].includes(tf.getBackend())) {
      throw argumentError(
        'filterSize',
        size.join(' x '),
        'the same height and width on this backend',
      )
    }
    return original(dy, saved, attrs)
  })
}

function registerWindows(
  kernelName: string,
  placesOf: (shapes: readonly Shape[], attrs: WindowAttributes) => Places,
): void {
  replaceGradient(kernelName, (original) => (dy, saved, attrs) => {
    const given = attrs as unknown as WindowAttributes
    const { dimRoundingMode, dataFormat } = given
    const isUsual = [undefined, null, 'floor'].includes(dimRoundingMode)
    if (isUsual || dataFormat === 'NCHW') return original(dy, saved, attrs)
    const places = placesOf(
      saved.map(({ shape }) => shape as Shape),
      given,
    )
    return original(dy, saved, (withPadding(given, places) ?? attrs) as NamedAttrMap)
  })
}

interface ResizeAttributes {
  readonly alignCorners: boolean
  readonly halfPixelCenters: boolean
}

/**
 * Replaces the gradients of tf.image.resizeNearestNeighbor and resizeBilinear on all backends. Resizing
 * multiplies by a matrix along each axis, so its gradient multiplies by the transposed matrices. The
 * original gradients ignore `halfPixelCenters`. On the cpu backend, one of them swaps width and height,
 * and the other never returns for images of one pixel with `alignCorners`.
 */
export function registerResizeGradients(): void {
  registerResize('ResizeNearestNeighbor', nearest)
  registerResize('ResizeBilinear', bilinear)
}

function registerResize(
  kernelName: string,
  sourcesOf: (position: number, size: number, attrs: ResizeAttributes) => Sources,
): void {
  replaceGradient(kernelName, () => (dy, [images], given) => {
    const attrs = given as unknown as ResizeAttributes
    const alongAxis = (gradient: Tensor, axis: number) => {
      const [size, outputs] = [images!.shape[axis]!, gradient.shape[axis]!]
      const areCorners = attrs.alignCorners && outputs > 1
      const ratio = areCorners ? (size - 1) / (outputs - 1) : size / outputs
      return gradientAlong(gradient, axis, size, (output) => {
        const position = ratio * (attrs.halfPixelCenters ? output + 0.5 : output)
        return sourcesOf(position, size, attrs)
      })
    }
    return { images: () => alongAxis(alongAxis(dy as Tensor, 1), 2) }
  })
}

function nearest(position: number, size: number, { alignCorners }: ResizeAttributes): Sources {
  const source = alignCorners ? Math.round(position) : Math.floor(position)
  return [[Math.min(size - 1, source), 1]]
}

function bilinear(position: number, size: number, { halfPixelCenters }: ResizeAttributes): Sources {
  const at = Math.max(0, halfPixelCenters ? position - 0.5 : position)
  const below = Math.floor(at)
  return [
    [below, 1 - (at - below)],
    [Math.min(size - 1, below + 1), at - below],
  ]
}
