import type { TensorInfo } from '@tensorflow/tfjs-core'
import { replaceKernel, runKernel, tf, type KernelCall, type Tensor } from './tfjs.ts'
import {
  padded,
  paddedShape,
  reshaped,
  withoutBorder,
  type Border,
  type WindowAttributes,
} from './window-places.ts'

type Volume = [batch: number, depth: number, height: number, width: number, channels: number]

/**
 * Corrects convolutions and pooling of volumes. TensorFlow.js starts the first windows too late for padding
 * `same` where a stride is larger than the window. Its gradients of pooling are wrong at the border, and for
 * windows whose height and width differ. TensorFlow treats numeric padding as `same`.
 */
export function correctVolumes(backendName: string): void {
  type Call = KernelCall<never, WindowAttributes>
  for (const name of ['MaxPool', 'AvgPool']) {
    for (const kernelName of [`${name}3D`, `${name}3DGrad`]) {
      replaceKernel<Call>(kernelName, backendName, (original) => (call) => {
        const { x, input, dy } = call.inputs
        const isRight = backendName === 'tensorflow' && call.attrs.pad === 'valid'
        return isRight ? original(call) : tf.tidy(() => pool(name, (x ?? input)!, call.attrs, dy))
      })
    }
  }
  for (const kernelName of ['Conv3D', 'Conv3DBackpropFilterV2', 'Conv3DBackpropInputV2']) {
    if ((tf.getKernel(kernelName, backendName) as unknown) === undefined) continue
    replaceKernel<Call>(kernelName, backendName, (original) => (call) => {
      const inputs = call.inputs as Readonly<Record<string, TensorInfo>>
      const { attrs } = call
      const border = convolutionBorder(inputs, attrs)
      if (border.flat().every((width) => width === 0)) return original(call)
      const pad = attrs.pad === 'same' ? 'same' : 'valid'
      return tf.tidy(() => {
        const { x } = inputs
        if (x !== undefined) {
          return runKernel(kernelName, { ...inputs, x: padded(x, border) }, { ...attrs, pad })
        }
        const inputShape = paddedShape(attrs.inputShape!, border)
        return withoutBorder(runKernel(kernelName, inputs, { ...attrs, pad, inputShape }), border)
      })
    })
  }
}

/** Pools height and width, then depth. With `dy`, returns the gradient of `x` instead. */
function pool(name: string, x: TensorInfo, attrs: WindowAttributes, dy?: TensorInfo): Tensor {
  const [batch, depth, height, width, channels] = x.shape as Volume
  const { pad, dimRoundingMode } = attrs
  const sizes = [...triple(attrs.filterSize), 1]
  const strides = [...triple(attrs.strides), 1]
  const sides = [...triple(typeof pad === 'number' ? pad : 0), 0]
  const along = (...axes: number[]) => ({
    filterSize: axes.map((axis) => sizes[axis]!),
    strides: axes.map((axis) => strides[axis]!),
    pad:
      typeof pad === 'string'
        ? pad
        : [0, ...axes.map((axis) => sides[axis]!), 0].map((n) => [n, n]),
    dimRoundingMode: dimRoundingMode!,
  })
  const [ofImages, ofDepth] = [along(1, 2), along(0, 3)]
  const images = reshaped(x, [batch * depth, height, width, channels])
  const planes = runKernel(name, { x: images }, ofImages)
  const [, rows, columns] = planes.shape as [number, number, number]
  const lines = reshaped(planes, [batch, depth, rows * columns, channels])
  const output = runKernel(name, { x: lines }, ofDepth)
  if (dy === undefined) return reshaped(output, [batch, output.shape[1]!, rows, columns, channels])
  const slopes = reshaped(dy, output.shape)
  const ofLines = runKernel(`${name}Grad`, { dy: slopes, input: lines, output }, ofDepth)
  const inner = { dy: reshaped(ofLines, planes.shape), input: images, output: planes }
  return reshaped(runKernel(`${name}Grad`, inner, ofImages), x.shape)
}

/** Returns numeric padding. For `same`, counts values after the last window as a negative border. */
function convolutionBorder(
  { x, filter }: Readonly<Record<string, TensorInfo>>,
  { pad, inputShape, filterShape, ...attrs }: WindowAttributes,
): Border {
  const windows: readonly number[] = filterShape ?? filter!.shape
  const [strides, dilations] = [triple(attrs.strides), triple(attrs.dilations)]
  const shape: readonly number[] = inputShape ?? x!.shape
  return shape.map((size, axis) => {
    if (axis === 0 || axis === 4) return [0, 0]
    if (pad !== 'same') return typeof pad === 'number' ? [pad, pad] : [0, 0]
    const stride = strides[axis - 1]!
    const last = Math.floor((size - 1) / stride) * stride
    return [0, Math.min(0, last + (windows[axis - 1]! - 1) * dilations[axis - 1]! + 1 - size)]
  })
}

function triple(size: number | readonly number[] = 1): readonly number[] {
  return typeof size === 'number' ? [size, size, size] : size
}
