import type { KernelFunc, TensorInfo } from '@tensorflow/tfjs-core'
import { replaceKernel, runKernel, tf } from './tfjs.ts'

type PoolInfo =
  | ReturnType<typeof tf.backend_util.computePool2DInfo>
  | ReturnType<typeof tf.backend_util.computePool3DInfo>

/** The attributes of an AvgPoolGrad or AvgPool3DGrad kernel call that define the windows. */
interface Attributes {
  readonly filterSize: number
  readonly strides: number
  readonly pad: 'same' | 'valid' | number
  readonly dimRoundingMode?: 'floor' | 'round' | 'ceil'
}

interface Axis {
  readonly size: number
  readonly window: number
  readonly stride: number
  readonly before: number
  readonly outputs: number
}

/**
 * Corrects the gradients of average pooling of a backend. At the border, a mean covers only the values
 * inside the image, but the gradient kernels of TensorFlow.js divide by the size of the whole window.
 */
export function correctAveragePoolGradients(backendName: string): void {
  const kernels = { AvgPoolGrad: axes2d, AvgPool3DGrad: axes3d }
  for (const [kernelName, axesOf] of Object.entries(kernels)) {
    if ((tf.getKernel(kernelName, backendName) as unknown) === undefined) continue
    replaceKernel(kernelName, backendName, (original) => corrected(original, axesOf))
  }
}

/** Multiplies `dy` by the size of each window divided by the number of its values inside the image. */
function corrected(
  original: KernelFunc,
  axesOf: (shape: readonly number[], attrs: Attributes) => readonly Axis[],
): KernelFunc {
  return (call) => {
    const { dy, input } = call.inputs as Readonly<Record<'dy' | 'input', TensorInfo>>
    const factors = axesOf(input.shape, call.attrs as unknown as Attributes).map(factorsOf)
    if (factors.every((values) => values.every((factor) => factor === 1))) return original(call)
    const scaled = tf.tidy(() => {
      const along = factors.map((values, i) => {
        const shape = dy.shape.map((_, axis) => (axis === i + 1 ? values.length : 1))
        return tf.tensor(values, shape)
      })
      const product = along.reduce((a, b) => tf.mul(a, b))
      return runKernel('Multiply', { a: dy, b: product })
    })
    try {
      return original({ ...call, inputs: { ...call.inputs, dy: scaled } })
    } finally {
      scaled.dispose()
    }
  }
}

/**
 * Returns the factor of each window along one axis. A window without values inside the image has no
 * gradient, so its factor is 0.
 */
function factorsOf({ size, window, stride, before, outputs }: Axis): number[] {
  return Array.from({ length: outputs }, (_, i) => {
    const first = i * stride - before
    const count = Math.min(size, first + window) - Math.max(0, first)
    return count > 0 ? window / count : 0
  })
}

function axes2d(shape: readonly number[], attrs: Attributes): readonly Axis[] {
  const { filterSize, strides, pad, dimRoundingMode } = attrs
  const images = shape as [number, number, number, number]
  return axesIn(
    tf.backend_util.computePool2DInfo(images, filterSize, strides, 1, pad, dimRoundingMode),
  )
}

function axes3d(shape: readonly number[], attrs: Attributes): readonly Axis[] {
  const { filterSize, strides, pad, dimRoundingMode } = attrs
  const images = shape as [number, number, number, number, number]
  const info = tf.backend_util.computePool3DInfo(
    images,
    filterSize,
    strides,
    1,
    pad,
    dimRoundingMode,
  )
  const depth = {
    size: info.inDepth,
    window: info.filterDepth,
    stride: info.strideDepth,
    before: info.padInfo.front,
    outputs: info.outDepth,
  }
  return [depth, ...axesIn(info)]
}

function axesIn(info: PoolInfo): readonly Axis[] {
  const height = {
    size: info.inHeight,
    window: info.filterHeight,
    stride: info.strideHeight,
    before: info.padInfo.top,
    outputs: info.outHeight,
  }
  const width = {
    size: info.inWidth,
    window: info.filterWidth,
    stride: info.strideWidth,
    before: info.padInfo.left,
    outputs: info.outWidth,
  }
  return [height, width]
}
