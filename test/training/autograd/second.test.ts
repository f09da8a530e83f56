import type { ProcessGroup } from '@tsrun/distributed'
import {
  BatchNorm,
  Block,
  Conv2d,
  copyToRanks,
  crossEntropy,
  Embedding,
  GELU,
  LayerNorm,
  Linear,
  loadBackend,
  meanSquaredError,
  RMSNorm,
  SiLU,
  tf,
  type Module,
  type Tensor,
} from '@tsrun/training'

type Scalar = (x: Tensor) => Tensor

describe.each(['wasm', 'cpu'] as const)('the second derivative on %s', (backend) => {
  beforeAll(() => loadBackend(backend))

  /** The seed must not be 0, which TensorFlow.js takes as none. */
  const normal = (shape: number[], seed: number) => tf.randomNormal(shape, 0, 1, 'float32', seed)

  const squared = (layer: Module): Scalar => {
    for (const [i, parameter] of layer.parameters.entries()) {
      const { shape } = parameter
      parameter.value = tf.keep(tf.mul(normal([...shape], i + 1), 0.5))
    }
    return (x) => tf.sum(tf.square(layer.forward(x)))
  }

  /** The gradient of the product of a fixed vector with the gradient. */
  const second = (f: Scalar, x: Tensor): Float32Array =>
    tf.tidy(() => tf.grad(projected(f, x))(x).dataSync<'float32'>().slice())

  const projected = (f: Scalar, { shape }: Tensor): Scalar => {
    const direction = normal(shape, 7)
    return (at) => tf.sum(tf.mul(tf.grad(f)(at), direction))
  }

  /** Central differences of the first derivative. */
  const differences = (f: Scalar, x: Tensor): number[] => {
    const first = projected(f, x)
    const near = (index: number, step: number) =>
      tf.tidy(() => {
        const values = x.dataSync<'float32'>().slice()
        values[index]! += step
        return first(tf.tensor(values, x.shape)).dataSync()[0]!
      })
    return Array.from({ length: x.size }, (_, i) => (near(i, 1e-2) - near(i, -1e-2)) / 2e-2)
  }

  const expectEqual = (f: Scalar, x: Tensor) => {
    const found = second(f, x)
    const expected = differences(f, x)
    const largest = Math.max(...expected.map(Math.abs))
    expect(largest).toBeGreaterThan(1e-3)
    for (const [i, value] of expected.entries()) {
      expect(Math.abs(found[i]! - value) / largest).toBeLessThan(1e-2)
    }
  }

  const linear = { name: 'l', inputs: 4, outputs: 3 }
  const conv = { name: 'c', inputs: 1, outputs: 2, kernel: 2 }
  it.each<[string, () => Module, number[]]>([
    ['GELU', () => new GELU(), [3, 4]],
    ['SiLU', () => new SiLU(), [3, 4]],
    ['LayerNorm', () => new LayerNorm({ name: 'n', width: 4 }), [3, 4]],
    ['RMSNorm', () => new RMSNorm({ name: 'n', width: 4 }), [3, 4]],
    ['Linear with GELU', () => new Linear({ ...linear, activation: 'gelu' }), [3, 4]],
    ['Linear with tanh', () => new Linear({ ...linear, activation: 'tanh', bias: false }), [3, 4]],
    ['Conv2d with sigmoid', () => new Conv2d({ ...conv, activation: 'sigmoid' }), [1, 3, 3, 1]],
    ['Block', () => new Block({ name: 'b', width: 4, heads: 2, hidden: 4 }), [2, 3, 4]],
  ])('of %s equals differences of the first', (_, create, shape) => {
    expectEqual(squared(create()), tf.mul(normal(shape, 3), 0.5))
  })

  it('of a layer by its parameters equals differences of the first', () => {
    const ids = tf.tensor2d([0, 1, 1, 2], [2, 2], 'int32')
    const embedding = new Embedding({ name: 'e', count: 3, width: 4 })
    const norm = new LayerNorm({ name: 'n', width: 4 })
    const output = squared(norm)
    const value = normal([3, 4], 5)
    expectEqual((table) => {
      embedding.weight.value = table
      return output(embedding.forward(ids))
    }, value)
  })

  it.each<[string, Scalar]>([
    ['exp', (x) => tf.sum(tf.mul(x, tf.exp(x)))],
    ['softmax', (x) => tf.sum(tf.square(tf.softmax(x)))],
    ['logSoftmax', (x) => tf.sum(tf.square(tf.logSoftmax(x)))],
    [
      'fused.matMul',
      (x) => tf.sum(tf.fused.matMul({ a: x, b: x, transposeB: true, activation: 'sigmoid' })),
    ],
    ['crossEntropy', (x) => crossEntropy(x, tf.tensor1d([1, 0, 3], 'int32'))],
    ['meanSquaredError', (x) => meanSquaredError(tf.tanh(x), tf.ones([3, 4]))],
    [
      'customGrad',
      tf.customGrad((x, save) => {
        const square = tf.square(x as Tensor)
        ;(save as (tensors: Tensor[]) => void)([square])
        return {
          value: tf.sum(tf.mul(square, x as Tensor)),
          gradFunc: (dy: Tensor, [saved]: Tensor[]) => tf.mul(dy, tf.mul(saved!, 3)),
        }
      }),
    ],
  ])('of %s equals differences of the first', (_, f) => {
    expectEqual(f, normal([3, 4], 3))
  })

  it('has a derivative, too', () => {
    const third = tf.grad(tf.grad(tf.grad((x: Tensor) => tf.sum(tf.exp(x)))))
    expect(third(tf.tensor1d([1])).dataSync()[0]).toBeCloseTo(Math.E, 4)
  })

  const pair = { rank: 0, size: 2 } as ProcessGroup
  it.each<[string, () => Scalar]>([
    ['a batch norm in training', () => squared(new BatchNorm({ name: 'n', channels: 4 }))],
    ['a tensor parallel operation', () => (x) => tf.sum(copyToRanks(x, pair))],
  ])('of %s is an error', (_, create) => {
    expect(() => second(create(), normal([3, 4], 3))).toThrow(
      expect.objectContaining({ code: 'ERR_TSR_NO_GRADIENT' }),
    )
  })

  it('leaves no tensors behind', () => {
    const f = squared(new LayerNorm({ name: 'n', width: 4 }))
    const x = normal([3, 4], 3)
    const before = tf.memory().numTensors
    tf.dispose(tf.grad(tf.grad(f))(x))
    expect(tf.memory().numTensors).toBe(before)
  })
})
