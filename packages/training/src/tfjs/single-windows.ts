import type { TensorInfo } from '@tensorflow/tfjs-core'
import { replaceKernel, runKernel, tf, type Tensor } from './tfjs.ts'

type Size = Parameters<typeof tf.backend_util.computePool2DInfo>[1]
type Shape = [number, number, number, number]

interface Attributes {
  readonly filterSize: Size
  readonly strides: Size
  readonly pad: Parameters<typeof tf.backend_util.computePool2DInfo>[4]
  readonly dimRoundingMode?: 'floor' | 'round' | 'ceil'
}

interface Windows {
  readonly paddings: [number, number][]
  readonly end: number[]
  readonly strides: number[]
}

/**
 * Corrects pooling with 1 x 1 windows and numeric padding. If input and output have the same shape, the
 * kernels of TensorFlow.js return the input unchanged, even with strides and padding.
 */
export function correctSingleWindows(backendName: string): void {
  for (const kernelName of ['MaxPool', 'AvgPool']) {
    replaceKernel(kernelName, backendName, (original) => (call) => {
      const { x } = call.inputs as { readonly x: TensorInfo }
      const windows = singleWindows(x.shape as Shape, call.attrs as unknown as Attributes)
      if (windows === undefined) return original(call)
      return tf.tidy(() => {
        if (kernelName === 'MaxPool') return valuesAt(x, windows, -Infinity)
        // Divide to get 0 / 0 = NaN outside the image, because the wasm backend cannot pad with NaN.
        return tf.div(valuesAt(x, windows, 0), valuesAt(tf.ones(x.shape), windows, 0))
      })
    })
  }
}

function valuesAt(x: TensorInfo, windows: Windows, constantValue: number): Tensor {
  const { paddings, end, strides } = windows
  const padded = runKernel('PadV2', { x }, { paddings, constantValue })
  return everyStride(padded, end, strides)
}

/** Takes the values of a tensor at the multiples of the strides, below `end` in each axis. */
export function everyStride(x: TensorInfo, end: number[], strides: number[]): Tensor {
  const begin = end.map(() => 0)
  return runKernel('StridedSlice', { x }, { ...NO_MASKS, begin, end, strides })
}

const NO_MASKS = { beginMask: 0, endMask: 0, ellipsisMask: 0, newAxisMask: 0, shrinkAxisMask: 0 }

/** Returns the windows if the kernel would wrongly return its input; else undefined. */
function singleWindows(
  images: Shape,
  { filterSize, strides, pad, dimRoundingMode }: Attributes,
): Windows | undefined {
  if (typeof pad === 'string') return undefined
  const { computePool2DInfo } = tf.backend_util
  const info = computePool2DInfo(images, filterSize, strides, 1, pad, dimRoundingMode)
  const { inShape, outShape, padInfo } = info
  const { top, bottom, left, right } = padInfo
  const isSingle = info.filterHeight === 1 && info.filterWidth === 1
  if (!isSingle || String(inShape) !== String(outShape)) return undefined
  if (top + bottom + left + right === 0) return undefined
  const rows = (info.outHeight - 1) * info.strideHeight + 1
  const columns = (info.outWidth - 1) * info.strideWidth + 1
  return {
    paddings: [
      [0, 0],
      [top, Math.max(0, rows - info.inHeight - top)],
      [left, Math.max(0, columns - info.inWidth - left)],
      [0, 0],
    ],
    end: [inShape[0], rows, columns, inShape[3]],
    strides: [1, info.strideHeight, info.strideWidth, 1],
  }
}
