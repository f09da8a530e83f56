import type { NamedAttrMap, Tensor } from '@tensorflow/tfjs-core'
import { sizeOf } from './host-arrays.ts'
import { replaceGradient, tf } from './tfjs.ts'

type Gradients = Readonly<Record<string, () => Tensor>>

/**
 * Corrects gradients of TensorFlow.js on all backends: those of tf.mirrorPad, of tf.cumsum unless it sums
 * along the last axis, of tf.prod along negative axes or all axes, of tf.floorDiv, and of operations with
 * broadcast operands.
 */
export function registerArrayGradients(): void {
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

type Compute = (
  original: (attrs: NamedAttrMap) => Gradients,
  dy: Tensor,
  saved: readonly Tensor[],
  attrs: NamedAttrMap,
) => Gradients

function register(kernelName: string, compute: Compute): void {
  replaceGradient(kernelName, (original) => (dy, saved, attrs) => {
    return compute((changed) => original(dy, saved, changed), dy as Tensor, saved, attrs)
  })
}

function mirrorGradient(dy: Tensor, x: Tensor, { paddings, mode }: NamedAttrMap): Tensor {
  const between = mode === 'symmetric' ? 1 : 0
  return (paddings as [number, number][]).reduce((gradient, [before], axis) => {
    const size = x.shape[axis]!
    if (gradient.shape[axis] === size) return gradient
    return gradientAlong(gradient, axis, size, (output) => {
      const at = output - before
      if (at < 0) return [[-at - between, 1]]
      return [[at < size ? at : 2 * (size - 1) - at + between, 1]]
    })
  }, dy)
}

/** The indices of the source values of an output along one axis, and their weights. */
export type Sources = (readonly [source: number, weight: number])[]

/**
 * Returns the gradient of an operation along one axis: the product with the transpose of its matrix.
 *
 * @param size - the size of the input along the axis
 */
export function gradientAlong(
  dy: Tensor,
  axis: number,
  size: number,
  sourcesOf: (output: number) => Sources,
): Tensor {
  const outputs = dy.shape[axis]!
  const weights = new Float32Array(size * outputs)
  for (let output = 0; output < outputs; output++) {
    for (const [source, weight] of sourcesOf(output)) weights[source * outputs + output]! += weight
  }
  const [before, after] = [dy.shape.slice(0, axis), dy.shape.slice(axis + 1)]
  const lines = tf.reshape(dy, [sizeOf(before), outputs, sizeOf(after)])
  const product = tf.matMul(tf.tensor3d(weights, [1, size, outputs]), lines)
  return tf.reshape(product, [...before, size, ...after])
}
