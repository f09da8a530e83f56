import type { TensorInfo } from '@tensorflow/tfjs-core'
import { installEinsum } from './einsum.ts'
import { replaceKernel, runKernel, tf, type KernelCall } from './tfjs.ts'
import { correctVolumes } from './volumes.ts'
import {
  axesOf,
  borderOf,
  padded,
  poolingPlaces,
  type Axis,
  type WindowAttributes,
} from './window-places.ts'

/** Corrects kernels that are wrong on the backends cpu, wasm and webgpu. */
export function correctKernels(backendName: string): void {
  correctAveragePoolGradient(backendName)
  correctSingleWindows(backendName)
  correctVolumes(backendName)
  correctNegativeAxes(backendName)
  installEinsum(backendName)
}

/**
 * Corrects the gradient of average pooling of a backend. At the border, a mean covers only the values
 * inside the image, but the gradient kernels of TensorFlow.js divide by the size of the whole window.
 * This multiplies `dy` by the size of each window divided by the number of its values in the image.
 */
function correctAveragePoolGradient(backendName: string): void {
  type Call = KernelCall<'dy' | 'input', WindowAttributes>
  replaceKernel<Call>('AvgPoolGrad', backendName, (original) => (call) => {
    const { dy, input } = call.inputs
    const [rows, columns] = axesOf(poolingPlaces(input.shape, call.attrs)).map(factorsOf)
    if ([...rows!, ...columns!].every((factor) => factor === 1)) return original(call)
    const scaled = tf.tidy(() => {
      const product = tf.mul(
        tf.tensor(rows!, [1, rows!.length, 1, 1]),
        tf.tensor(columns!, [1, 1, columns!.length, 1]),
      )
      return runKernel('Multiply', { a: dy, b: product })
    })
    try {
      return original({ ...call, inputs: { ...call.inputs, dy: scaled } })
    } finally {
      scaled.dispose()
    }
  })
}

/** Returns the factor of each window along one axis, 0 for windows without values inside the image. */
function factorsOf({ size, window, stride, before, outputs }: Axis): number[] {
  return Array.from({ length: outputs }, (_, i) => {
    const first = i * stride - before
    const count = Math.min(size, first + window) - Math.max(0, first)
    return count > 0 ? window / count : 0
  })
}

/**
 * Corrects pooling with 1 x 1 windows and numeric padding. If input and output have the same shape, the
 * kernels of TensorFlow.js return the input unchanged, even with strides and padding.
 */
function correctSingleWindows(backendName: string): void {
  for (const kernelName of ['MaxPool', 'AvgPool']) {
    replaceKernel<KernelCall<'x', WindowAttributes>>(
      kernelName,
      backendName,
      (original) => (call) => {
        const { x } = call.inputs
        if (typeof call.attrs.pad === 'string') return original(call)
        const places = poolingPlaces(x.shape, call.attrs)
        if (places.filterHeight * places.filterWidth > 1) return original(call)
        const { strides } = call.attrs
        const pool = (x: TensorInfo, value?: number) => {
          const larger = padded(x, borderOf(places), value)
          return runKernel(kernelName, { x: larger }, { filterSize: 1, strides, pad: 'valid' })
        }
        return tf.tidy(() => {
          if (kernelName === 'MaxPool') return pool(x, -Infinity)
          // Divide to get 0 / 0 = NaN outside the image, because the wasm backend cannot pad with NaN.
          return tf.div(pool(x), pool(tf.ones(x.shape)))
        })
      },
    )
  }
}

/**
 * Corrects tf.cumsum, tf.cumprod and tf.gather along a negative axis, for which kernels of TensorFlow.js
 * access memory outside of their tensors, return nothing, or throw.
 */
export function correctNegativeAxes(backendName: string): void {
  type Call = KernelCall<'x', { readonly axis: number }>
  for (const kernelName of ['Cumsum', 'Cumprod', 'GatherV2']) {
    if ((tf.getKernel(kernelName, backendName) as unknown) === undefined) continue
    replaceKernel<Call>(kernelName, backendName, (original) => (call) => {
      const [axis] = tf.util.parseAxisParam(call.attrs.axis, call.inputs.x.shape)
      return original({ ...call, attrs: { ...call.attrs, axis: axis! } })
    })
  }
}
