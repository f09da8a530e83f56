import { replaceGradient, tf, type Tensor } from './tfjs.ts'

interface Attributes {
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
export function registerResizeGradients(): void {
  register('ResizeNearestNeighbor', nearest)
  register('ResizeBilinear', bilinear)
}

function register(
  kernelName: string,
  sourcesOf: (position: number, size: number, attrs: Attributes) => Sources,
): void {
  replaceGradient(kernelName, () => (dy, [images], given) => {
    const attrs = given as unknown as Attributes
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

function nearest(position: number, size: number, { alignCorners }: Attributes): Sources {
  const source = alignCorners ? Math.round(position) : Math.floor(position)
  return [[Math.min(size - 1, source), 1]]
}

function bilinear(position: number, size: number, { halfPixelCenters }: Attributes): Sources {
  const at = Math.max(0, halfPixelCenters ? position - 0.5 : position)
  const below = Math.floor(at)
  return [
    [below, 1 - (at - below)],
    [Math.min(size - 1, below + 1), at - below],
  ]
}
