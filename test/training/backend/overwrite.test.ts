import { loadBackend, overwrite, recordModule, ShardedMLP, tf, type Tensor } from '@tsrun/training'

describe('overwriting a used tensor on wasm', () => {
  beforeAll(() => loadBackend('wasm'))

  const image = () => tf.tensor4d(new Array(8).fill(1), [1, 2, 2, 2])
  const filter = () => tf.tensor4d([1, 1], [1, 1, 2, 1])

  it.each<[string, (weights: ReturnType<typeof filter>) => Tensor]>([
    ['depthwise', (w) => tf.depthwiseConv2d(image(), w, 1, 'valid')],
    ['convolution', (w) => tf.conv2d(image(), w, 1, 'valid')],
    ['dilated', (w) => tf.conv2d(image(), w, 1, 'valid', 'NHWC', 2)],
    ['prelu', (w) => tf.prelu(tf.fill([1, 1, 2, 1], -1), w)],
    ['average', (w) => tf.avgPool(w, 1, 1, 'valid')],
  ])('changes the results of later calls of a kernel: %s', (_, use) => {
    const weights = filter()
    const before = use(weights).dataSync<'float32'>()
    const memory = tf.memory()
    expect(overwrite(weights, (values) => values.fill(5))).toBe(weights)
    expect(tf.memory()).toEqual(memory)
    expect(use(weights).dataSync()).toEqual(before.map((value) => 5 * value))
  })

  it('writes weights in place after a product with an activation', () => {
    const [a, b, bias] = [tf.ones([1, 2]), tf.ones([2, 2]), tf.zeros([2])]
    const run = (weights: typeof b) =>
      tf.fused.matMul({ a, b: weights, bias, activation: 'sigmoid' }).dataSync()[0]!
    expect(run(b)).toBeCloseTo(1 / (1 + Math.exp(-2)), 5)
    const next = overwrite(b, (values) => values.fill(0))
    expect(next).toBe(b)
    expect(run(next)).toBeCloseTo(0.5, 6)
  })

  it('writes operands of products in place', () => {
    const [a, b] = [tf.ones([1, 2]), tf.ones([2, 2])]
    expect([...tf.matMul(a, b).dataSync()]).toEqual([2, 2])
    const before = tf.memory()
    expect(overwrite(b, (values) => values.fill(3))).toBe(b)
    expect(overwrite(a, (values) => values.fill(2))).toBe(a)
    expect(tf.memory()).toEqual(before)
    expect([...tf.matMul(a, b).dataSync()]).toEqual([12, 12])
  })

  it('does not change clones, reshaped tensors or tensors that a recording saved', () => {
    const x = tf.ones([3, 4])
    const [clone, flat] = [tf.clone(x), tf.reshape(x, [12])]
    const next = overwrite(x, (values) => values.fill(7))
    expect(next).not.toBe(x)
    expect([...clone.dataSync(), ...flat.dataSync()]).toEqual(new Array(24).fill(1))
    const model = new ShardedMLP({ layers: 1, inputs: 4, outputs: 2 })
    const recording = recordModule(model, next, { needsInputGradient: false })
    expect(overwrite(next, (values) => values.fill(8))).not.toBe(next)
    recording.dispose()
  })
})

it('overwriting creates a new tensor on cpu, where tensors share the arrays they were created from', async () => {
  await loadBackend('cpu')
  const mine = Float32Array.of(1, 2)
  const tensor = tf.tensor1d(mine)
  const next = overwrite(tensor, (values) => values.fill(3))
  expect([...next.dataSync()]).toEqual([3, 3])
  expect([...mine]).toEqual([1, 2])
})
