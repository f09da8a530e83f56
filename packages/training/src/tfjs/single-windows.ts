import type { TensorInfo } from '@tensorflow/tfjs-core'
import { replaceKernel, runKernel, tf, type KernelCall, type Tensor } from './tfjs.ts'
import { axesOf, borderOf, poolingPlaces, type WindowAttributes } from './window-places.ts'

/**
 * Corrects pooling with 1 x 1 windows and numeric padding. If input and output have the same shape, the
 * kernels of TensorFlow.js return the input unchanged, even with strides and padding.
 */
export function correctSingleWindows(backendName: string): void {
  type Call = KernelCall<'x', WindowAttributes>
  for (const kernelName of ['MaxPool', 'AvgPool']) {
    replaceKernel<Call>(kernelName, backendName, (original) => (call) => {
      const { x } = call.inputs
      if (typeof call.attrs.pad === 'string') return original(call)
      const places = poolingPlaces(x.shape, call.attrs)
      const axes = axesOf(places)
      const paddings = borderOf(places).map(([before, beyond]) => [before, Math.max(0, beyond)])
      const isSingle = axes.every(({ window, size, outputs }) => window === 1 && size === outputs)
      if (!isSingle || paddings.flat().every((size) => size === 0)) return original(call)
      const strides = [1, ...axes.map(({ stride }) => stride), 1]
      const end = places.outShape.map((size, axis) => (size - 1) * strides[axis]! + 1)
      const valuesAt = (x: TensorInfo, constantValue: number) => {
        const padded = runKernel('PadV2', { x }, { paddings, constantValue })
        return everyStride(padded, end, strides)
      }
      return tf.tidy(() => {
        if (kernelName === 'MaxPool') return valuesAt(x, -Infinity)
        // Divide to get 0 / 0 = NaN outside the image, because the wasm backend cannot pad with NaN.
        return tf.div(valuesAt(x, 0), valuesAt(tf.ones(x.shape), 0))
      })
    })
  }
}

/** Takes the values of a tensor at the multiples of the strides, below `end` in each axis. */
export function everyStride(x: TensorInfo, end: number[], strides: number[]): Tensor {
  const begin = end.map(() => 0)
  return runKernel('StridedSlice', { x }, { ...NO_MASKS, begin, end, strides })
}

const NO_MASKS = { beginMask: 0, endMask: 0, ellipsisMask: 0, newAxisMask: 0, shrinkAxisMask: 0 }
