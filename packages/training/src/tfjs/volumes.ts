import type { TensorInfo } from '@tensorflow/tfjs-core'
import type { HostArray, HostDType } from './host-arrays.ts'
import { replaceKernel, runKernel, tf, type KernelCall } from './tfjs.ts'
import {
  axesOf,
  windowPlaces,
  poolingPlaces3d,
  type Places,
  type Places3d,
  type WindowAttributes,
} from './window-places.ts'

type Call<K extends string> = KernelCall<K, WindowAttributes>

/**
 * Corrects convolutions and pooling of volumes with padding `same` where a stride is larger than the
 * window. TensorFlow.js and the max pooling of TensorFlow then use a negative padding, so that the first
 * windows start too late. This function removes the values behind the last window, so that the padding is 0.
 */
export function correctVolumes(backendName: string): void {
  for (const kernelName of KERNELS) {
    if ((tf.getKernel(kernelName, backendName) as unknown) === undefined) continue
    replaceKernel<Call<never>>(kernelName, backendName, (original) => (call) => {
      const { attrs } = call
      if (attrs.pad !== 'same') return original(call)
      const inputs = call.inputs as Readonly<Record<string, TensorInfo>>
      const name = inputs['input'] === undefined ? 'x' : 'input'
      const volumes = inputs[name]
      const shape = attrs.inputShape ?? volumes!.shape
      const used = usedShape(windowPlaces(inputs, attrs))
      if (used.every((size, axis) => size === shape[axis])) return original(call)
      return tf.tidy(() => {
        const begin = used.map(() => 0)
        const small = volumes && {
          [name]: runKernel('Slice', { x: volumes }, { begin, size: used }),
        }
        const inputShape = attrs.inputShape && { inputShape: used }
        const result = runKernel(kernelName, { ...inputs, ...small }, { ...attrs, ...inputShape })
        if (!ofImages.has(kernelName)) return result
        const paddings = shape.map((size, axis): [number, number] => [0, size - used[axis]!])
        return runKernel('PadV2', { x: result }, { paddings, constantValue: 0 })
      })
    })
  }
}

const ofImages = new Set(['Conv3DBackpropInputV2', 'MaxPool3DGrad', 'AvgPool3DGrad'])
const KERNELS = ['Conv3D', 'Conv3DBackpropFilterV2', 'MaxPool3D', 'AvgPool3D', ...ofImages]

/** The shape [batch, depth, height, width, channels] without the values behind the last windows. */
function usedShape(places: Places | Places3d): number[] {
  const sizes = axesOf(places).map(({ size, window, stride, outputs }) =>
    Math.min(size, (outputs - 1) * stride + window),
  )
  return [places.batchSize, ...sizes, places.inChannels]
}

/** The methods of a backend in host memory that this module uses. */
interface HostBackend {
  readSync(dataId: object): HostArray
  write(values: HostArray, shape: readonly number[], dtype: HostDType): object
}

/**
 * Replaces the gradient of max pooling of volumes on a backend in host memory. The kernel of TensorFlow.js
 * is wrong for windows whose height and width differ.
 */
export function correctMaxPool3dGradient(backendName: string): void {
  type GradientCall = KernelCall<'input' | 'dy', WindowAttributes, HostBackend>
  replaceKernel<GradientCall>('MaxPool3DGrad', backendName, () => ({ inputs, attrs, backend }) => {
    const { input, dy } = inputs
    const { shape } = input
    const [x, slopes] = [input, dy].map(({ dataId }) => backend.readSync(dataId))
    const gradient = maxPoolGradient(x!, slopes!, poolingPlaces3d(shape, attrs))
    return { dataId: backend.write(gradient, shape, 'float32'), shape, dtype: 'float32' }
  })
}

/** Adds each slope to the gradient of the largest value in its window, the first of equal ones. */
function maxPoolGradient(x: HostArray, slopes: HostArray, places: Places3d): Float32Array {
  const gradient = new Float32Array(x.length)
  const { batchSize, inChannels } = places
  const [depth, height, width] = axesOf(places).map((axis) =>
    Array.from({ length: axis.outputs }, (_, i) => {
      const first = i * axis.stride - axis.before
      return [Math.max(0, first), Math.min(axis.size, first + axis.window)] as const
    }),
  )
  let output = 0
  for (let batch = 0; batch < batchSize; batch++) {
    for (const [front, back] of depth!) {
      for (const [top, bottom] of height!) {
        for (const [left, right] of width!) {
          for (let channel = 0; channel < inChannels; channel++) {
            let [largest, place] = [-Infinity, -1]
            for (let z = front; z < back; z++) {
              for (let y = top; y < bottom; y++) {
                const row = ((batch * places.inDepth + z) * places.inHeight + y) * places.inWidth
                for (let at = row + left; at < row + right; at++) {
                  const value = x[at * inChannels + channel]!
                  if (value > largest) [largest, place] = [value, at * inChannels + channel]
                }
              }
            }
            if (place >= 0) gradient[place]! += slopes[output]!
            output++
          }
        }
      }
    }
  }
  return gradient
}
