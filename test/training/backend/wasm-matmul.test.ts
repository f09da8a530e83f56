import { loadBackend, tf, type Tensor } from '@tsrun/training'

beforeAll(() => loadBackend('wasm'))

/** The product in double precision. */
function reference(a: Tensor, b: Tensor, transposeA: boolean, transposeB: boolean): number[] {
  const [left, right] = [a.dataSync(), b.dataSync()]
  const [m, k] = transposeA ? [a.shape[1]!, a.shape[0]] : [a.shape[0], a.shape[1]!]
  const n = transposeB ? b.shape[0] : b.shape[1]!
  return Array.from({ length: m * n }, (_, p) => {
    const [row, column] = [Math.floor(p / n), p % n]
    let sum = 0
    for (let i = 0; i < k; i++) {
      const x = left[transposeA ? i * m + row : row * k + i]!
      sum += x * right[transposeB ? column * k + i : i * n + column]!
    }
    return sum
  })
}

describe('matMul on wasm', () => {
  const sizes = [
    [1, 1, 1],
    [3, 5, 7],
    [16, 128, 10],
    [16, 10, 128],
    [130, 9, 17],
  ] as const
  const flags = [
    [false, false],
    [false, true],
    [true, false],
    [true, true],
  ] as const
  const cases = sizes.flatMap((size) => flags.map((flag) => [...size, ...flag] as const))

  it.each(cases)('is right for %i x %i x %i, transposed %s, %s', (m, k, n, flipA, flipB) => {
    const a = tf.randomUniform(flipA ? [k, m] : [m, k], -1, 1, 'float32', 1)
    const b = tf.randomUniform(flipB ? [n, k] : [k, n], -1, 1, 'float32', 2)
    const before = tf.memory()
    const product = tf.matMul(a, b, flipA, flipB)
    expect(product.shape).toEqual([m, n])
    const expected = reference(a, b, flipA, flipB)
    const worst = Math.max(...product.dataSync().map((value, i) => Math.abs(value - expected[i]!)))
    expect(worst).toBeLessThan(1e-5)
    product.dispose()
    expect(tf.memory()).toEqual(before)
  })

  it('keeps batched products and leading axes of one', () => {
    const a = tf.randomUniform([2, 3, 4], -1, 1, 'float32', 1)
    const b = tf.randomUniform([2, 5, 4], -1, 1, 'float32', 2)
    const product = tf.matMul(a, b, false, true)
    const parts = [0, 1].map((i) => {
      const part = (x: Tensor) => tf.reshape(tf.slice(x, [i, 0, 0], [1, -1, -1]), x.shape.slice(1))
      return tf.matMul(part(a), part(b), false, true)
    })
    expect(product.shape).toEqual([2, 3, 5])
    const difference = tf.max(tf.abs(tf.sub(product, tf.stack(parts)))).dataSync()[0]
    expect(difference).toBeLessThan(1e-6)
    const single = tf.matMul(tf.ones([1, 3, 4]), tf.ones([1, 5, 4]), false, true)
    expect(single.shape).toEqual([1, 3, 5])
    expect(single.dataSync()).toEqual(new Float32Array(15).fill(4))
  })

  it('multiplies for gradients at a third of the forward rate at least', () => {
    const x = tf.randomUniform([64, 512], -1, 1, 'float32', 1)
    const w = tf.randomUniform([512, 512], -1, 1, 'float32', 2)
    const forward = () => tf.matMul(x, w)
    const inputGradient = () => tf.matMul(x, w, false, true)
    const weightGradient = () => tf.matMul(x, x, true, false)
    // Other processes come and go: the best of a few rounds, each measured in turns.
    const rounds = Array.from({ length: 5 }, () => {
      const [f, i, g] = medians([forward, inputGradient, weightGradient], 21)
      return Math.max(i!, g!) / f!
    })
    expect(Math.min(...rounds)).toBeLessThan(3)
  })
})

/** Median time of each function, measured in turns. */
function medians(functions: readonly (() => Tensor)[], repetitions: number): number[] {
  const times = functions.map((): number[] => [])
  for (let i = 0; i < repetitions; i++) {
    functions.forEach((run, which) => {
      const start = performance.now()
      run().dispose()
      times[which]!.push(performance.now() - start)
    })
  }
  return times.map((list) => list.sort((p, q) => p - q)[repetitions >> 1]!)
}
