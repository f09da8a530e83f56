import { CausalSelfAttention, loadBackend, tf, Block, type Tensor } from '@tsrun/training'
import { causalAttention, currentBackend } from '@tsrun/training/parts'

beforeAll(() => loadBackend('wasm'))

interface Sizes {
  readonly batch: number
  readonly length: number
  readonly heads: number
  readonly size: number
}

/** The output of a layer and the gradient of its input, with the layer's pass or with the definition. */
function attend({ heads, size }: Sizes, x: Tensor, core = causalAttention): [Tensor, Tensor] {
  const layer = new CausalSelfAttention({
    name: 'attn',
    width: heads * size,
    heads,
    deviation: 0.5,
  })
  layer.core = core
  const weights = tf.randomNormal(x.shape, 0, 1, 'float32', 2)
  const total = (input: Tensor): Tensor => tf.sum(tf.mul(layer.forward(input), weights))
  return [layer.forward(x), tf.grad(total)(x)]
}

/** Another object, so the layer takes no pass of the backend. */
const definition = { ...causalAttention }

it('attention refuses heads that do not divide its width', () => {
  expect(() => new CausalSelfAttention({ name: 'a', width: 8, heads: 3 })).toThrow(
    /width is 8; expected a multiple of the 3 heads/,
  )
})

it.each([
  ['another width', () => tf.zeros([2, 3, 16]), /\[2, 3, 16\]; expected float32 \[\.\.\., 8\]/],
  ['integers', () => tf.zeros([2, 3, 8], 'int32'), /\[2, 3, 8\], int32; expected float32/],
])('attention refuses an input of %s', (_, inputOf, message) => {
  const layer = new CausalSelfAttention({ name: 'attn', width: 8, heads: 2 })
  expect(() => layer.forward(inputOf())).toThrow(message)
})

it('the gradient of a transformer block leaves the gradient of its output to the caller', () => {
  const block = new Block({ name: 'h', width: 8, heads: 2 })
  const dy = tf.ones([2, 3, 8])
  tf.grad((x) => block.forward(x))(tf.ones([2, 3, 8]), dy).dispose()
  expect(dy.isDisposed).toBe(false)
})

const input = ({ batch, length, heads, size }: Sizes): Tensor =>
  tf.randomNormal([batch, length, heads * size], 0, 1, 'float32', 1)

/** The largest difference, relative to the largest value. */
function distance(actual: Tensor, expected: Tensor): number {
  const [difference] = tf.max(tf.abs(tf.sub(actual, expected))).dataSync()
  const [largest] = tf.max(tf.abs(expected)).dataSync()
  return difference! / largest!
}

describe('the attention pass of wasm equals the definition, forward and backward,', () => {
  it.each([
    { batch: 1, length: 1, heads: 1, size: 4 },
    { batch: 2, length: 7, heads: 2, size: 4 },
    { batch: 3, length: 64, heads: 2, size: 5 },
    { batch: 1, length: 65, heads: 1, size: 3 },
    { batch: 2, length: 130, heads: 4, size: 16 },
  ])('for $batch sequences of $length with $heads heads of $size', (sizes) => {
    const x = input(sizes)
    const [output, gradient] = attend(sizes, x)
    const [expectedOutput, expectedGradient] = attend(sizes, x, definition)
    expect(distance(output, expectedOutput)).toBeLessThan(2e-6)
    expect(distance(gradient, expectedGradient)).toBeLessThan(2e-6)
  })

  it('for sequences whose probabilities are too large to keep', () => {
    const sizes = { batch: 1, length: 1100, heads: 4, size: 2 }
    const x = input(sizes)
    const [, gradient] = attend(sizes, x)
    const [, expected] = attend(sizes, x, definition)
    expect(distance(gradient, expected)).toBeLessThan(2e-6)
  })
})

it.each([3, 5, 8])(
  'attention on wasm with a cache equals that to the whole sequence, for heads of %i values',
  (size) => {
    const [rows, cache] = [
      input({ batch: 2, length: 9, heads: 6, size }),
      tf.zeros([2, 12, 4 * size]),
    ]
    const { attention, cachedAttention } = currentBackend()
    const parts = [4, 1, 1, 3].map((count, i) => {
      const before = [0, 4, 5, 6][i]!
      return cachedAttention!(tf.slice(rows, [0, before, 0], [-1, count, -1]), size, cache, before)
    })
    expect(distance(tf.concat(parts, 1), attention!(rows, size).value)).toBeLessThan(2e-6)
  },
)

it.each([undefined, definition])(
  'attention to large scores does not see later positions',
  (core) => {
    const sizes = { batch: 8, length: 3, heads: 1, size: 4 }
    const x = tf.mul(input(sizes), 1e18)
    const first = (of: Tensor) => tf.slice(of, [0, 0, 0], [-1, 1, -1])
    const [all] = attend(sizes, x, core)
    const [alone] = attend(sizes, first(x), core)
    expect(distance(first(all), alone)).toBeLessThan(1e-6)
  },
)

describe('the attention pass of wasm', () => {
  const sizes = { batch: 2, length: 70, heads: 2, size: 4 }

  it('computes the same bits for a sequence, whatever else is in the batch', () => {
    const x = input(sizes)
    const one = tf.slice(x, [1, 0, 0], [1, -1, -1])
    const [all, alone] = [attend(sizes, x), attend(sizes, one)]
    expect(tf.slice(all[0], [1, 0, 0], [1, -1, -1]).dataSync()).toEqual(alone[0].dataSync())
  })

  it('computes no position from later ones', () => {
    const x = input(sizes)
    const start = tf.slice(x, [0, 0, 0], [-1, 40, -1])
    const [all] = attend(sizes, x)
    expect(distance(tf.slice(all, [0, 0, 0], [-1, 40, -1]), attend(sizes, start)[0])).toBeLessThan(
      1e-6,
    )
  })

  it('sums the exponentials of a row in the same order, whatever follows', () => {
    // Multiples of 1/8, so that products have no rounding.
    const values = Float32Array.from(
      { length: 32 * 108 },
      (_, i) => Math.round(8 * Math.sin(i * i)) / 8,
    )
    const rows = tf.tensor3d(values, [32, 9, 12])
    const sumsUpTo = (length: number): Tensor =>
      tf.reshape(
        tf.slice(
          currentBackend().attention!(tf.slice(rows, [0, 0, 0], [-1, length, -1]), 4).saved[1]!,
          0,
          2 * 32 * length,
        ),
        [32, 1, length, 2],
      )
    const all = sumsUpTo(9)
    for (let length = 1; length < 9; length++) {
      const begin = tf.slice(all, [0, 0, 0, 0], [-1, -1, length, -1])
      expect(sumsUpTo(length).dataSync()).toEqual(begin.dataSync())
    }
  })

  it('passes NaN on to all positions that see it', () => {
    const x = tf.tidy(() => {
      const values = input(sizes)
      const wrong = tf.oneHot([50], 70).reshape([1, 70, 1])
      return tf.where(tf.cast(wrong, 'bool').broadcastTo(values.shape), NaN, values)
    })
    const rows = tf.any(tf.isNaN(attend(sizes, x)[0]), -1).arraySync() as number[][]
    for (const row of rows) expect(row.slice(50)).toEqual(new Array(20).fill(1))
  })

  it('frees everything after a backward pass', () => {
    const x = input(sizes)
    tf.tidy(() => attend(sizes, x).length)
    const before = tf.memory()
    tf.tidy(() => attend(sizes, x).length)
    // Each layer keeps its parameters, four tensors.
    expect(tf.memory().numTensors - before.numTensors).toBe(4)
  })
})
