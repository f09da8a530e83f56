import { tf, type Tensor } from '@tsrun/training'

/** An operation with windows, and inputs for it. */
export interface SmallCase {
  readonly title: string
  readonly inputs: readonly (readonly number[])[]
  readonly compute: (...inputs: Tensor[]) => Tensor
  /** The inputs in which it is linear, so that its gradient is the transpose of its forward pass. */
  readonly linear: readonly number[]
  /** Whether each output is a value of the only input, or -Infinity; default false. */
  readonly selects?: boolean
  /** Whether TensorFlow.js has its gradient; default true. */
  readonly differentiable?: boolean
}

export const sizeOf = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1)
const series = new Map<number, Float32Array>()
/** Of both signs, and different for each input. */
export function valuesOf(size: number, seed: number): Float32Array {
  let known = series.get(seed)
  if (known === undefined || known.length < size) {
    const length = Math.max(size, 1000)
    known = Float32Array.from({ length }, (_, i) => Math.sin(1 + 12.9 * (i + 31 * seed)))
    series.set(seed, known)
  }
  return known.slice(0, size)
}

export interface Result {
  readonly shape: readonly number[]
  readonly values: Float32Array
  readonly gradients: Float32Array[]
}

/** The output, and the gradients of its sum with weights. */
export function run({ inputs, compute, differentiable = true }: SmallCase): Result {
  return tf.tidy(() => {
    const tensors = inputs.map((shape, i) => tf.tensor(valuesOf(sizeOf(shape), i), [...shape]))
    const y = compute(...tensors)
    const dy = tf.tensor(valuesOf(y.size, 7), y.shape)
    return {
      shape: y.shape,
      values: Float32Array.from(y.dataSync()),
      gradients: differentiable
        ? tf
            .grads(compute)(tensors, dy)
            .map((dx) => dx.dataSync<'float32'>().slice())
        : [],
    }
  })
}
