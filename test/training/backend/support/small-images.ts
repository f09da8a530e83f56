import { loadBackend, tf } from '@tsrun/training'
import {
  convolutions,
  dilated,
  poolings,
  poolingsWithPlaces,
  resizings,
  rounded,
  run,
  sizeOf,
  valuesOf,
  volumes,
  type Result,
  type SmallCase,
} from './small-windows.ts'

// Jest looks up a global name at each use, which takes longer than the function.
const { abs } = Math
const { is } = Object

/** The gradient of input `k`: the product of dy and the output for each unit vector. */
function transposed({ inputs, compute }: SmallCase, k: number): Float32Array {
  return tf.tidy(() => {
    const tensors = inputs.map((shape, i) => tf.tensor(valuesOf(sizeOf(shape), i), [...shape]))
    const shape = inputs[k]!
    const gradient = new Float32Array(sizeOf(shape))
    let dy: Float32Array | undefined
    for (let at = 0; at < gradient.length; at++) {
      const unit = new Float32Array(gradient.length)
      unit[at] = 1
      tensors[k] = tf.tensor(unit, [...shape])
      const y = compute(...tensors).dataSync<'float32'>()
      dy ??= valuesOf(y.length, 7)
      let sum = 0
      for (let i = 0; i < y.length; i++) sum += y[i]! * dy[i]!
      gradient[at] = sum
    }
    return gradient
  })
}

/** The gradient of an operation that selects values: each slope at the place of its value. */
function selected({ inputs, compute }: SmallCase): Float32Array {
  return tf.tidy(() => {
    const [shape] = inputs as [readonly number[]]
    const values = valuesOf(sizeOf(shape), 0)
    const y = compute(tf.tensor(values, [...shape])).dataSync<'float32'>()
    const dy = valuesOf(y.length, 7)
    const gradient = new Float32Array(values.length)
    y.forEach((value, i) => {
      if (value !== -Infinity) gradient[values.indexOf(value)]! += dy[i]!
    })
    return gradient
  })
}

export const differ = (a: Float32Array, b: Float32Array): boolean =>
  a.length !== b.length || a.some((value, i) => !is(value, b[i]) && !(abs(value - b[i]!) <= 1e-4))

/** One of seven cases. Kinds of operations alternate in twos to sixes, so each of them is chosen. */
export const isUsual = (place: number): boolean => place % 7 === 0

/** Holds gradients on cpu against the forward pass, and all results on wasm against those on cpu. */
export function describeSmallImages(isChosen: (place: number) => boolean): void {
  describe.each([
    ['convolutions and windows with gaps', [convolutions, dilated]],
    ['poolings', [poolings, poolingsWithPlaces]],
    ['rounded sizes', [rounded]],
    ['volumes', [volumes]],
    ['resizings', [resizings]],
  ])('%s of small images', (_, cases) => {
    const chosen = cases.flatMap((make) => [...make()]).filter((_, place) => isChosen(place))
    const expected: Result[] = []

    beforeAll(async () => {
      await loadBackend('cpu')
      expected.push(...chosen.map(run))
    })

    it('have a gradient on cpu that follows from the forward pass', async () => {
      await loadBackend('cpu')
      const wrong = chosen.flatMap((one, i) => {
        const { gradients } = expected[i]!
        const inputs = one.linear.filter((k) => differ(gradients[k]!, transposed(one, k)))
        if (one.selects === true && differ(gradients[0]!, selected(one))) inputs.push(0)
        return inputs.map((k) => `${one.title}, gradient of input ${k}`)
      })
      expect(wrong).toEqual([])
    })

    it('have the same values and gradients on wasm as on cpu', async () => {
      await loadBackend('wasm')
      const before = tf.memory().numTensors
      const wrong = chosen.filter((one, i) => {
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
}
