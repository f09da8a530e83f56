import { jest } from '@jest/globals'
import { loadBackend, tf } from '@tsrun/training'
import {
  convolutions,
  dilated,
  poolings,
  poolingsWithPlaces,
  resizings,
  run,
  sizeOf,
  valuesOf,
  volumes,
  type Result,
  type SmallCase,
} from '../support/small-windows.ts'

// Thousands of small tensors, on cores that others may load.
jest.setTimeout(120_000)

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

it.each(['cpu', 'wasm'] as const)(
  'pooling windows inside the padding have no value on %s',
  async (backend) => {
    await loadBackend(backend)
    const x = tf.tensor4d([1, 2, 3, 4], [1, 2, 2, 1])
    const pad: [number, number][] = [[0, 0], [1, 0], [0, 1], [0, 0]] // prettier-ignore
    const [largest, mean] = [tf.maxPool, tf.avgPool].map((pool) => [
      ...pool(x, 1, 2, pad as Parameters<typeof tf.maxPool>[3]).dataSync(),
    ])
    expect(largest).toEqual([-Infinity, -Infinity, 3, -Infinity])
    expect(mean).toEqual([NaN, NaN, 3, NaN])
  },
)

describe.each([
  ['convolutions and windows with gaps', [convolutions, dilated]],
  ['poolings', [poolings, poolingsWithPlaces]],
  ['volumes', [volumes]],
  ['resizings', [resizings]],
])('%s of small images', (_, cases) => {
  const all = cases.flatMap((make) => [...make()])
  const expected: Result[] = []

  beforeAll(async () => {
    await loadBackend('cpu')
    expected.push(...all.map(run))
  })

  it('have a gradient on cpu that follows from the forward pass', async () => {
    await loadBackend('cpu')
    const wrong = all.flatMap((one, i) =>
      one.linear
        .filter((k) => differ(expected[i]!.gradients[k]!, transposed(one, k)))
        .map((k) => `${one.title}, gradient of input ${k}`),
    )
    expect(wrong).toEqual([])
  })

  it('have the same values and gradients on wasm as on cpu', async () => {
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
