import type { NamedAttrMap, Tensor } from '@tensorflow/tfjs-core'
import { registerEinsumGradient } from './einsum.ts'
import { loadGradients } from '#tfjs'
import { replaceGradient, tf } from './tfjs.ts'
import { windowPlaces, withPadding, type WindowAttributes } from './window-places.ts'

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
 * Corrects gradients of TensorFlow.js on all backends: those of tf.mirrorPad, of tf.cumsum unless it sums
 * along the last axis, of tf.prod along negative axes or all axes, of tf.floorDiv, and of operations with
 * broadcast operands.
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
 * Corrects the gradients of pooling and convolution with `dimRoundingMode` on all backends. The original
 * gradients ignore it, so they pass numeric padding for the same windows.
 */
function registerWindowGradients(): void {
  for (const kernelName of ['MaxPool', 'AvgPool', 'Conv2D']) {
    replaceGradient(kernelName, (original) => (dy, saved, attrs) => {
      const given = attrs as unknown as WindowAttributes
      const { dimRoundingMode, dataFormat } = given
      const isUsual = [undefined, null, 'floor'].includes(dimRoundingMode)
      if (isUsual || dataFormat === 'NCHW') return original(dy, saved, attrs)
      const [x, filter] = saved
      const changed = withPadding(given, windowPlaces({ x, filter }, given))
      return original(dy, saved, (changed ?? attrs) as NamedAttrMap)
    })
  }
}

interface ResizeAttributes {
  readonly alignCorners: boolean
  readonly halfPixelCenters: boolean
}

/** For each output along one axis, the indices of the source values and their weights. */
type Sources = (readonly [source: number, weight: number])[]

/**
 * Replaces the gradients of tf.image.resizeNearestNeighbor and resizeBilinear on all backends. Resizing
 * multiplies by a matrix along each axis, so its gradient multiplies by the transposed matrices. The
 * original gradients ignore `halfPixelCenters`. On the cpu backend, one of them swaps width and height,
 * and the other never returns for images of one pixel with `alignCorners`.
 */
function registerResizeGradients(): void {
  registerResize('ResizeNearestNeighbor', nearest)
  registerResize('ResizeBilinear', bilinear)
}

function registerResize(
  kernelName: string,
  sourcesOf: (position: number, size: number, attrs: ResizeAttributes) => Sources,
): void {
  replaceGradient(kernelName, () => (dy, [images], given) => {
    const attrs = given as unknown as ResizeAttributes
    const [batch, height, width, channels] = images!.shape as [number, number, number, number]
    const [, rows, columns] = (dy as Tensor).shape as [number, number, number, number]
    /** Returns a matrix [1, size, outputs] with the weight of each source for each output. */
    const transposedMatrix = (size: number, outputs: number) => {
      const areCorners = attrs.alignCorners && outputs > 1
      const ratio = areCorners ? (size - 1) / (outputs - 1) : size / outputs
      const weights = new Float32Array(size * outputs)
      for (let output = 0; output < outputs; output++) {
        const position = ratio * (attrs.halfPixelCenters ? output + 0.5 : output)
        for (const [source, weight] of sourcesOf(position, size, attrs)) {
          weights[source * outputs + output]! += weight
        }
      }
      return tf.tensor3d(weights, [1, size, outputs])
    }
    return {
      images: () => {
        const lines = tf.reshape(dy as Tensor, [batch, rows, columns * channels])
        const short = tf.matMul(transposedMatrix(height, rows), lines)
        const pixels = tf.reshape(short, [batch * height, columns, channels])
        return tf.reshape(tf.matMul(transposedMatrix(width, columns), pixels), images!.shape)
      },
    }
  })
}

function nearest(position: number, size: number, { alignCorners }: ResizeAttributes): Sources {
  const source = alignCorners ? Math.round(position) : Math.floor(position)
  return [[Math.min(size - 1, source), 1]]
}

function bilinear(position: number, size: number, { halfPixelCenters }: ResizeAttributes): Sources {
  const at = Math.max(0, halfPixelCenters ? position - 0.5 : position)
  const below = Math.floor(at)
  return [
    [below, 1 - (at - below)],
    [Math.min(size - 1, below + 1), at - below],
  ]
}
