import type { NamedAttrMap, Tensor } from '@tensorflow/tfjs-core'
import { registerEinsumGradient } from './einsum.ts'
import { loadGradients } from '#tfjs'
import { replaceGradient, runKernel, tf } from './tfjs.ts'
import { windowPlaces, withPadding, type Shape, type WindowAttributes } from './window-places.ts'

let registered: unknown

/**
 * Registers the gradient functions of TensorFlow.js. Registers them again if `@tensorflow/tfjs` was
 * imported since then, because it overwrites them. Corrects the gradients of resizing, of windows and of
 * arrays, and adds the missing gradient of tf.einsum.
 */
export function registerGradients(): void {
  const found = tf.getGradient('ResizeBilinear') as unknown
  if (found !== undefined && found === registered) return
  loadGradients()
  registerResizeGradients()
  registered = tf.getGradient('ResizeBilinear')
  registerWindowGradients()
  registerArrayGradients()
  registerEinsumGradient()
}

type Gradients = Readonly<Record<string, () => Tensor>>

/**
 * Corrects the gradients of some operations on all backends: tf.mirrorPad, tf.cumsum along any axis but
 * the last, tf.prod along negative axes or all axes, tf.floorDiv, and operations with broadcast operands.
 */
function registerArrayGradients(): void {
  register('MirrorPad', (_, dy, [x], attrs) => ({ x: () => mirrorGradient(dy, x!, attrs) }))
  register('Cumsum', (_, dy, _x, { axis, exclusive, reverse }) => ({
    x: () => tf.cumsum(dy, axis as number, exclusive as boolean, !(reverse as boolean)),
  }))
  register('FloorDiv', (_, _dy, [a, b]) => ({
    a: () => tf.zeros(a!.shape),
    b: () => tf.zeros(b!.shape),
  }))
  register('Prod', (original, dy, [x], attrs) => {
    const axis = tf.util.parseAxisParam(attrs['axis'] as number[], x!.shape)
    return original({ ...attrs, axis })
  })
  for (const kernelName of ['Maximum', 'Minimum', 'SquaredDifference', 'BatchMatMul']) {
    register(kernelName, (original, dy, saved, attrs) => {
      const gradients = original(attrs)
      // Sum over the axes along which the operand was broadcast.
      const sumFor =
        (name: string, { shape }: Tensor) =>
        (): Tensor => {
          const gradient = gradients[name]!()
          const axes = tf.broadcast_util.getReductionAxes(shape, gradient.shape)
          return axes.length === 0 ? gradient : tf.reshape(tf.sum(gradient, axes), shape)
        }
      return { a: sumFor('a', saved[0]!), b: sumFor('b', saved[1]!) }
    })
  }
}

function register(
  kernelName: string,
  compute: (
    original: (attrs: NamedAttrMap) => Gradients,
    dy: Tensor,
    saved: readonly Tensor[],
    attrs: NamedAttrMap,
  ) => Gradients,
): void {
  replaceGradient(kernelName, (original) => (dy, saved, attrs) => {
    return compute((changed) => original(dy, saved, changed), dy as Tensor, saved, attrs)
  })
}

/** Computes the gradient of tf.mirrorPad: for each value, the sum of the gradients of its copies. */
function mirrorGradient(dy: Tensor, x: Tensor, attrs: NamedAttrMap): Tensor {
  const paddings = attrs['paddings'] as [number, number][]
  const mode = attrs['mode'] as 'reflect' | 'symmetric'
  // Rotate the axes, so that the next axis comes first.
  const rotation = [...x.shape.keys()].slice(1).concat(0)
  return paddings.reduce((gradient, padding, axis) => {
    const size = x.shape[axis]!
    const sources = tf.cast(tf.mirrorPad(tf.range(0, size), [padding], mode), 'int32')
    return tf.transpose(tf.unsortedSegmentSum(gradient, sources, size), rotation)
  }, dy)
}

/** Passes numeric padding to gradients, because they ignore `dimRoundingMode`. */
function registerWindowGradients(): void {
  for (const kernelName of ['MaxPool', 'AvgPool', 'Conv2D']) {
    register(kernelName, (original, _, [x, filter], attrs) => {
      const given = attrs as NamedAttrMap & WindowAttributes
      const isUsual = [undefined, null, 'floor'].includes(given.dimRoundingMode)
      if (isUsual || given.dataFormat === 'NCHW') return original(attrs)
      return original(withPadding(given, windowPlaces({ x, filter }, given)) ?? attrs)
    })
  }
}

/**
 * Replaces the gradients of resizing on all backends. Resizing multiplies by a matrix along each axis, so
 * its gradient multiplies by the transposed matrices. The originals ignore `halfPixelCenters`. On cpu,
 * one original swaps width and height; the other never returns for images of one pixel with
 * `alignCorners`.
 */
function registerResizeGradients(): void {
  for (const kernelName of ['ResizeNearestNeighbor', 'ResizeBilinear']) {
    register(kernelName, (_, dy, [images], attrs) => {
      const [batch, height, width, channels] = images!.shape as Shape
      const [, rows, columns] = dy.shape as Shape
      /** Returns the matrix [1, outputs, size] along an axis: the identity matrix with resized columns. */
      const matrix = (size: number, outputs: number) => {
        const identity = tf.reshape(tf.eye(size), [1, size, 1, size])
        const resized = runKernel(
          kernelName,
          { images: identity },
          { ...attrs, size: [outputs, 1] },
        )
        return tf.reshape(resized, [1, outputs, size])
      }
      return {
        images: () => {
          const lines = tf.reshape(dy, [batch, rows, columns * channels])
          const short = tf.matMul(matrix(height, rows), lines, true)
          const pixels = tf.reshape(short, [batch * height, columns, channels])
          return tf.reshape(tf.matMul(matrix(width, columns), pixels, true), images!.shape)
        },
      }
    })
  }
}
