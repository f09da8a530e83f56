import { loadBackend, overwrite, recordModule, ShardedMLP, tf, viewOf } from '@tsrun/training'

describe('overwriting a used tensor on wasm', () => {
  beforeAll(() => loadBackend('wasm'))

  const image = () => tf.tensor4d(new Array(8).fill(1), [1, 2, 2, 2])
  const filter = () => tf.tensor4d([1, 1], [1, 1, 2, 1])
  const convolve = (weights: ReturnType<typeof filter>) => [
    ...tf.depthwiseConv2d(image(), weights, 1, 'valid').dataSync(),
  ]

  it('in place has no effect on a depthwise convolution, because XNNPACK has packed its filter', () => {
    const weights = filter()
    expect(convolve(weights)).toEqual(new Array(8).fill(1))
    viewOf(weights).fill(5)
    expect([...weights.dataSync()]).toEqual([5, 5])
    expect(convolve(weights)).toEqual(new Array(8).fill(1))
  })

  it('with overwrite() creates a new tensor', () => {
    const weights = filter()
    convolve(weights)
    const before = tf.memory()
    const next = overwrite(weights, (values) => values.fill(5)) as typeof weights
    expect(next).not.toBe(weights)
    expect(weights.isDisposed).toBe(true)
    expect(tf.memory()).toEqual(before)
    expect(convolve(next)).toEqual(new Array(8).fill(5))
  })

  it.each([
    ['depthwise', (w: ReturnType<typeof filter>) => tf.depthwiseConv2d(image(), w, 1, 'valid')],
    ['dilated', (w: ReturnType<typeof filter>) => tf.conv2d(image(), w, 1, 'valid', 'NHWC', 2)],
    ['prelu', (w: ReturnType<typeof filter>) => tf.prelu(tf.ones([1, 1, 2, 1]), w)],
  ])('creates a new tensor after a kernel that packs it: %s', (_, use) => {
    const weights = filter()
    use(weights)
    expect(overwrite(weights, (values) => values.fill(5))).not.toBe(weights)
  })

  it('writes weights in place after a product with an activation, which packs no copy of them', () => {
    const [a, b, bias] = [tf.ones([1, 2]), tf.ones([2, 2]), tf.zeros([2])]
    const run = (weights: typeof b) =>
      tf.fused.matMul({ a, b: weights, bias, activation: 'sigmoid' }).dataSync()[0]!
    expect(run(b)).toBeCloseTo(1 / (1 + Math.exp(-2)), 5)
    const next = overwrite(b, (values) => values.fill(0))
    expect(next).toBe(b)
    expect(run(next)).toBeCloseTo(0.5, 6)
  })

  it('writes in place after products and convolutions of our kernels, which pack nothing', () => {
    const [a, b] = [tf.ones([1, 2]), tf.ones([2, 2])]
    expect([...tf.matMul(a, b).dataSync()]).toEqual([2, 2])
    const weights = filter()
    expect([...tf.conv2d(image(), weights, 1, 'valid').dataSync()]).toEqual([2, 2, 2, 2])
    expect(overwrite(weights, (values) => values.fill(5))).toBe(weights)
    expect([...tf.conv2d(image(), weights, 1, 'valid').dataSync()]).toEqual([10, 10, 10, 10])
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
