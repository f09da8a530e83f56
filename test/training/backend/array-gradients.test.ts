import { loadBackend, tf, type Tensor } from '@tsrun/training'
import { sizeOf, valuesOf } from './support/small-windows.ts'

interface Case {
  readonly title: string
  readonly inputs: readonly (readonly number[])[]
  readonly compute: (...inputs: Tensor[]) => Tensor
}

const pairs: readonly (readonly [number, number])[] = [
  [1, 2],
  [2, 1],
]
const cases: readonly Case[] = [
  ...(['reflect', 'symmetric'] as const).map((mode) => ({
    title: `mirrorPad, ${mode}`,
    inputs: [[3, 4]],
    compute: (x: Tensor) => tf.mirrorPad(x, [...pairs] as [number, number][], mode),
  })),
  ...[0, 1, 2, -1, -2].flatMap((axis) =>
    [false, true].flatMap((exclusive) =>
      [false, true].map((reverse) => ({
        title: `cumsum along axis ${axis}${exclusive ? ', exclusive' : ''}${reverse ? ', reverse' : ''}`,
        inputs: [[3, 3, 3]],
        compute: (x: Tensor) => tf.cumsum(x, axis, exclusive, reverse),
      })),
    ),
  ),
  { title: 'prod along the last axis', inputs: [[2, 3]], compute: (x) => tf.prod(x, -1) },
  { title: 'prod of all values', inputs: [[2, 2]], compute: (x) => tf.prod(x) },
  ...(['maximum', 'minimum', 'squaredDifference'] as const).flatMap((name) =>
    [
      [[2, 3, 4], [4]],
      [
        [3, 1],
        [2, 1, 4],
      ],
      [[], [2, 3]],
    ].map((inputs) => ({
      title: `${name} of shapes ${JSON.stringify(inputs)}`,
      inputs,
      compute: (a: Tensor, b: Tensor) => tf[name](a, b),
    })),
  ),
  { title: 'a batch times a matrix', inputs: [[2, 3, 4], [4, 2]], compute: (a, b) => tf.matMul(a, b) }, // prettier-ignore
  { title: 'a matrix times a batch', inputs: [[1, 3, 4], [2, 2, 4]], compute: (a, b) => tf.matMul(a, b, false, true) }, // prettier-ignore
  { title: 'an einsum without axes', inputs: [[3, 4], [4]], compute: (a, b) => tf.einsum('ij,j->', a, b) }, // prettier-ignore
]

const STEP = 2 ** -6

/** The gradient of a weighted sum of the outputs with respect to input `k`, by central differences. */
function differences({ inputs, compute }: Case, k: number): number[] {
  const given = inputs.map((shape, i) => valuesOf(sizeOf(shape), i))
  return Array.from(given[k]!, (_, at) => {
    const [above, below] = [STEP, -STEP].map((step) => {
      const tensors = given.map((values, i) => {
        const moved = values.slice()
        if (i === k) moved[at]! += step
        return tf.tensor(moved, [...inputs[i]!])
      })
      const y = compute(...tensors).dataSync<'float32'>()
      const weights = valuesOf(y.length, 7)
      return y.reduce((sum, value, i) => sum + value * weights[i]!, 0)
    })
    return (above! - below!) / (2 * STEP)
  })
}

describe.each(['cpu', 'wasm'] as const)('on %s', (backend) => {
  beforeAll(() => loadBackend(backend))

  it.each(cases)('the gradient of $title equals central differences of the forward pass', (one) => {
    tf.tidy(() => {
      const tensors = one.inputs.map((shape, i) =>
        tf.tensor(valuesOf(sizeOf(shape), i), [...shape]),
      )
      const y = one.compute(...tensors)
      const dy = tf.tensor(valuesOf(y.size, 7), y.shape)
      const gradients = tf.grads(one.compute)(tensors, dy)
      for (const [k, gradient] of gradients.entries()) {
        expect(gradient.shape).toEqual([...one.inputs[k]!])
        const wanted = differences(one, k)
        for (const [i, value] of gradient.dataSync().entries()) {
          expect(value).toBeCloseTo(wanted[i]!, 2)
        }
      }
    })
  })

  it('the gradient of tf.floorDiv is zero', () => {
    tf.tidy(() => {
      const [a, b] = [tf.tensor1d([5, 7]), tf.tensor1d([2, 3])]
      const gradients = tf.grads((x, y) => tf.floorDiv(x, y))([a, b])
      expect(gradients.map((each) => [...each.dataSync()])).toEqual([[0, 0], [0, 0]]) // prettier-ignore
      const ofInt = tf.grad((x) => tf.floorDiv(tf.cast(x, 'int32'), tf.scalar(2, 'int32')))(a)
      expect(ofInt.dtype).toBe('float32')
    })
  })

  it('tf.cumsum and tf.cumprod count axes from the end', () => {
    tf.tidy(() => {
      const x = tf.tensor2d([1, 2, 3, 4], [2, 2])
      expect([...tf.cumsum(x, -1).dataSync()]).toEqual([1, 3, 3, 7])
      expect([...tf.cumsum(x, -2).dataSync()]).toEqual([1, 2, 4, 6])
      expect([...tf.cumprod(x, -1).dataSync()]).toEqual([1, 2, 3, 12])
    })
  })

  it('tf.einsum sums over axes of one operand', () => {
    tf.tidy(() => {
      const [a, b] = [tf.tensor2d([1, 2, 3, 4], [2, 2]), tf.tensor1d([1, 10])]
      expect([...tf.einsum('ij,j->', a, b).dataSync()]).toEqual([64])
      expect([...tf.einsum('ij,jk->k', a, a).dataSync()]).toEqual([22, 32])
    })
  })
})
