import type { TensorInfo } from '@tensorflow/tfjs-core'
import { replaceKernel, runKernel, tf, type KernelCall, type Tensor } from './tfjs.ts'
import { poolingPlaces, type WindowAttributes } from './window-places.ts'

type Windows = NonNullable<ReturnType<typeof singleWindows>>

/**
 * Corrects pooling with 1 x 1 windows and numeric padding. If input and output have the same shape, the
 * kernels of TensorFlow.js return the input unchanged, even with strides and padding.
 */
export function correctSingleWindows(backendName: string): void {
  type Call = KernelCall<'x', WindowAttributes>
  for (const kernelName of ['MaxPool', 'AvgPool']) {
    replaceKernel<Call>(kernelName, backendName, (original) => (call) => {
      const { x } = call.inputs
      const windows = singleWindows(x.shape, call.attrs)
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
function singleWindows(images: readonly number[], attrs: WindowAttributes) {
  if (typeof attrs.pad === 'string') return undefined
  const info = poolingPlaces(images, attrs)
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
