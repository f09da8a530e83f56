import { jest } from '@jest/globals'
import { loadBackend, tf } from '@tsrun/training'
import {
  convolutions,
  dilated,
  poolings,
  resizings,
  volumes,
  type SmallCase,
} from '../support/small-windows.ts'

// Thousands of small tensors, on cores that others may load.
jest.setTimeout(120_000)

const sizeOf = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1)
/** Of both signs, and different for each input. */
const valuesOf = (size: number, seed: number): Float32Array =>
  Float32Array.from({ length: size }, (_, i) => Math.sin(1 + 12.9 * (i + 31 * seed)))

interface Result {
  readonly shape: readonly number[]
  readonly values: Float32Array
  readonly gradients: Float32Array[]
}

function run({ inputs, compute, differentiable = true }: SmallCase): Result {
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

/** The gradient of input `k`: the product of dy and the output for each unit vector. */
function transposed({ inputs, compute }: SmallCase, k: number): Float32Array {
  return Float32Array.from({ length: sizeOf(inputs[k]!) }, (_, at) =>
    tf.tidy(() => {
      const tensors = inputs.map((shape, i) => {
        const unit = new Float32Array(sizeOf(shape))
        unit[at] = 1
        return tf.tensor(i === k ? unit : valuesOf(sizeOf(shape), i), [...shape])
      })
      const y = compute(...tensors).dataSync<'float32'>()
      const dy = valuesOf(y.length, 7)
      return y.reduce((sum, value, i) => sum + value * dy[i]!, 0)
    }),
  )
}

const differ = (a: Float32Array, b: Float32Array): boolean =>
  a.length !== b.length ||
  a.some((value, i) => !Object.is(value, b[i]) && !(Math.abs(value - b[i]!) <= 1e-4))

describe.each([
  ['convolutions and windows with gaps', [convolutions, dilated]],
  ['poolings', [poolings]],
  ['volumes', [volumes]],
  ['resizings', [resizings]],
])('%s of small images', (_, cases) => {
  const all = cases.flatMap((make) => [...make()])
  const expected: Result[] = []

  beforeAll(async () => {
    await loadBackend('cpu')
    expected.push(...all.map(run))
  })

  it('have the gradient on cpu that follows from the forward pass', async () => {
    await loadBackend('cpu')
    const wrong = all.flatMap((one, i) =>
      one.linear
        .filter((k) => differ(expected[i]!.gradients[k]!, transposed(one, k)))
        .map((k) => `${one.title}, gradient of input ${k}`),
    )
    expect(wrong).toEqual([])
  })

  it('have the values and gradients of cpu on wasm', async () => {
    await loadBackend('wasm')
    const before = tf.memory().numTensors
    const wrong = all.filter((one, i) => {
      const [actual, wanted] = [run(one), expected[i]!]
      return (
        String(actual.shape) !== String(wanted.shape) ||
        differ(actual.values, wanted.values) ||
        actual.gradients.some((gradient, k) => differ(gradient, wanted.gradients[k]!))
      )
    })
    expect(wrong.map(({ title }) => title)).toEqual([])
    expect(tf.memory().numTensors).toBe(before)
  })
})
