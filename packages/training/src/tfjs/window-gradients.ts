import type { NamedAttrMap } from '@tensorflow/tfjs-core'
import { replaceGradient } from './tfjs.ts'
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
 * gradients ignore it, so they pass numeric padding for the same windows.
 */
export function registerWindowGradients(): void {
  register('MaxPool', ([images], attrs) => poolingPlaces(images!, attrs))
  register('AvgPool', ([images], attrs) => poolingPlaces(images!, attrs))
  register('Conv2D', ([images, filter], attrs) => convolutionPlaces(images!, filter!, attrs))
}

function register(
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
