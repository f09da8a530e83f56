import { isDeepStrictEqual } from 'node:util'
import { loadBackend, record, tf, viewOf, type Tensor } from '@tsrun/training'

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

  it.each(cases)('is correct for %i x %i x %i, transposed %s, %s', (m, k, n, flipA, flipB) => {
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

  it.each([1, 2, 3])('gives %i rows the bits that they have among more rows', (count) => {
    for (const k of [1, 3, 4, 6, 130, 300]) {
      for (const n of [1, 7, 8, 21, 520]) {
        const a = tf.randomUniform([7, k], -1, 1, 'float32', k)
        const b = tf.randomUniform([k, n], -1, 1, 'float32', n)
        const bias = tf.randomUniform([n], -1, 1, 'float32', 3)
        for (const activation of ['linear', 'relu'] as const) {
          const multiply = (a: Tensor) => tf.fused.matMul({ a, b, bias, activation })
          const among = tf.slice(multiply(a), 0, count).dataSync()
          expect(multiply(tf.slice(a, 0, count)).dataSync()).toEqual(among)
        }
      }
    }
  })

  it.each(flags)('multiplies batches, transposed %s, %s', (flipA, flipB) => {
    const a = tf.randomUniform([2, 3, ...(flipA ? [9, 6] : [6, 9])], -1, 1, 'float32', 1)
    const b = tf.randomUniform([2, 3, ...(flipB ? [5, 9] : [9, 5])], -1, 1, 'float32', 2)
    const before = tf.memory()
    const product = tf.matMul(a, b, flipA, flipB)
    expect(product.shape).toEqual([2, 3, 6, 5])
    const values = product.dataSync()
    for (let i = 0; i < 6; i++) {
      const [left, right] = [matrix(a, i), matrix(b, i)]
      const expected = reference(left, right, flipA, flipB)
      expected.forEach((value, p) => {
        expect(Math.abs(values[i * 30 + p]! - value)).toBeLessThan(1e-5)
      })
      tf.dispose([left, right])
    }
    product.dispose()
    expect(tf.memory()).toEqual(before)
  })

  it('broadcasts the axes that one operand lacks', () => {
    const a = tf.randomUniform([2, 1, 3, 4], -1, 1, 'float32', 1)
    const b = tf.randomUniform([3, 4, 5], -1, 1, 'float32', 2)
    const product = tf.matMul(a, b)
    expect(product.shape).toEqual([2, 3, 3, 5])
    for (let i = 0; i < 6; i++) {
      const alone = tf.matMul(matrix(a, Math.floor(i / 3)), matrix(b, i % 3))
      expect(matrix(product, i).dataSync()).toEqual(alone.dataSync())
    }
    const single = tf.matMul(tf.ones([1, 3, 4]), tf.ones([1, 5, 4]), false, true)
    expect(single.shape).toEqual([1, 3, 5])
    expect(single.dataSync()).toEqual(new Float32Array(15).fill(4))
  })

  it('computes the gradients of batches', () => {
    const [a, b] = [tf.randomUniform([3, 4, 5]), tf.randomUniform([3, 6, 5])]
    const gradients = (q: Tensor, k: Tensor) => {
      const keys = { name: 'k', shape: k.shape, value: k }
      const scores = record((x) => tf.matMul(x, k, false, true), q, [keys], {
        needsInputGradient: true,
      })
      let dk: Tensor | undefined
      const dq = scores.backward(scores.value, (_, gradient) => {
        dk = gradient
      })
      return [dq!, dk!] as const
    }
    const [da, db] = gradients(a, b)
    for (let i = 0; i < 3; i++) {
      const [ea, eb] = gradients(matrix(a, i), matrix(b, i))
      expect(matrix(da, i).dataSync()).toEqual(ea.dataSync())
      expect(matrix(db, i).dataSync()).toEqual(eb.dataSync())
    }
  })

  it.each(['linear', 'relu', 'sigmoid'] as const)('adds a bias, then %s', (activation) => {
    const a = tf.randomUniform([7, 300], -1, 1, 'float32', 1)
    const b = tf.randomUniform([300, 530], -1, 1, 'float32', 2)
    const bias = tf.randomUniform([530], -1, 1, 'float32', 3)
    const fused = tf.fused.matMul({ a, b, bias, activation })
    const sum = tf.add(tf.matMul(a, b), bias)
    const expected = activation === 'linear' ? sum : tf[activation](sum)
    expect(tf.max(tf.abs(tf.sub(fused, expected))).dataSync()[0]).toBeLessThan(2e-5)
    expect(fused.shape).toEqual([7, 530])
  })

  it('is correct for dimensions of several blocks', () => {
    const a = tf.randomUniform([131, 517], -1, 1, 'float32', 1)
    const b = tf.randomUniform([517, 1030], -1, 1, 'float32', 2)
    const [flippedA, flippedB] = [tf.transpose(a), tf.transpose(b)]
    const expected = reference(a, b, false, false)
    const first = tf.matMul(a, b).dataSync()
    expect(Math.max(...sampled(first, expected))).toBeLessThan(1e-4)
    expect(isDeepStrictEqual(tf.matMul(flippedA, b, true, false).dataSync(), first)).toBe(true)
    expect(isDeepStrictEqual(tf.matMul(a, flippedB, false, true).dataSync(), first)).toBe(true)
    expect(isDeepStrictEqual(tf.matMul(flippedA, flippedB, true, true).dataSync(), first)).toBe(
      true,
    )
  })

  it('leaves whole numbers and invalid products to the cpu backend', () => {
    expect(() => tf.matMul(tf.ones([2, 3]), tf.ones([4, 5]))).toThrow('inner shapes')
    const whole = tf.matMul(tf.ones([2, 3], 'int32'), tf.ones([3, 2], 'int32'))
    expect([whole.dtype, ...whole.dataSync()]).toEqual(['int32', 3, 3, 3, 3])
    expect(tf.matMul(tf.ones([0, 3]), tf.ones([3, 2])).shape).toEqual([0, 2])
  })

  it('uses values that were written into an operand', () => {
    const [x, w] = [tf.ones([1, 2]), tf.ones([2, 2])]
    expect([...tf.matMul(x, w).dataSync()]).toEqual([2, 2])
    viewOf(w).fill(3)
    expect([...tf.matMul(x, w).dataSync()]).toEqual([6, 6])
  })

  it('multiplies transposed batches as fast as untransposed batches', () => {
    const a = tf.randomUniform([8, 64, 128], -1, 1, 'float32', 1)
    const b = tf.randomUniform([8, 128, 64], -1, 1, 'float32', 2)
    const flipped = tf.randomUniform([8, 64, 128], -1, 1, 'float32', 2)
    const straight = () => tf.matMul(a, b)
    const transposed = () => tf.matMul(a, flipped, false, true)
    const rounds = Array.from({ length: 5 }, () => {
      const [s, t] = medians([straight, transposed], 21)
      return t! / s!
    })
    expect(Math.min(...rounds)).toBeLessThan(2)
  })

  it('multiplies for gradients at a third of the forward rate or faster', () => {
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

/** Matrix `i` of a batch. */
function matrix(x: Tensor, i: number): Tensor {
  const [rows, columns] = x.shape.slice(-2) as [number, number]
  return tf.tidy(() => {
    const batch = tf.reshape(x, [-1, rows, columns])
    return tf.reshape(tf.slice(batch, [i, 0, 0], [1, rows, columns]), [rows, columns])
  })
}

/** The differences of every 97th value. */
function sampled(actual: ArrayLike<number>, expected: readonly number[]): number[] {
  return expected.flatMap((value, i) => (i % 97 === 0 ? [Math.abs(actual[i]! - value)] : []))
}

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
