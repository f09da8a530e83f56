import type { NamedAttrMap, Tensor } from '@tensorflow/tfjs-core'
import { replaceGradient, replaceKernel, tf, type KernelCall } from './tfjs.ts'

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

/** The gradient of a value is the sum of the gradients of its copies. */
function mirrorGradient(dy: Tensor, x: Tensor, { paddings, mode }: NamedAttrMap): Tensor {
  const between = mode === 'symmetric' ? 1 : 0
  let gradient = dy
  for (const [axis, [before, after]] of (paddings as [number, number][]).entries()) {
    if (before === 0 && after === 0) continue
    const size = x.shape[axis]!
    const sources = Int32Array.from({ length: before + size + after }, (_, i) => {
      const at = i - before
      if (at < 0) return -at - between
      return at < size ? at : 2 * (size - 1) - at + between
    })
    const others = x.shape.map((_, i) => i).filter((i) => i !== axis)
    const order = [axis, ...others]
    const sums = tf.unsortedSegmentSum(
      tf.transpose(gradient, order),
      tf.tensor1d(sources, 'int32'),
      size,
    )
    gradient = tf.transpose(
      sums,
      order.map((_, i) => order.indexOf(i)),
    )
  }
  return gradient
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
