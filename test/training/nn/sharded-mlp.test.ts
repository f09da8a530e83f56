import { disposeModule, loadBackend, ShardedMLP, shardedMLP, tf } from '@tsrun/training'

const size = { layers: 5, inputs: 12, hidden: 8, outputs: 3 }
const bits = (module: ShardedMLP) =>
  module.parameters.map(({ name, value }) => [name, ...value.dataSync()])

describe('ShardedMLP', () => {
  beforeAll(() => loadBackend('wasm'))

  it('names its parameters by layer, and defaults to 16 layers for MNIST', () => {
    const model = new ShardedMLP()
    expect(model.parameters).toHaveLength(32)
    expect(model.parameters[0]).toMatchObject({ name: 'layers.0.weight', shape: [784, 128] })
    expect(model.parameters[7]).toMatchObject({ name: 'layers.3.bias', shape: [128] })
    expect(model.parameters[30]).toMatchObject({ name: 'layers.15.weight', shape: [128, 10] })
    for (const { shape, value } of model.parameters) expect(value.shape).toEqual(shape)
    disposeModule(model)
  })

  it('has the same initial bits in every layout, on every backend', async () => {
    const whole = bits(new ShardedMLP({ ...size, seed: 7 }))
    const recipe = shardedMLP({ ...size, seed: 7 })
    expect([recipe.slice(0, 2), recipe.slice(2, 3), recipe.slice(3, 5)].flatMap(bits)).toEqual(
      whole,
    )
    expect(bits(recipe.build())).toEqual(whole)
    await loadBackend('cpu')
    expect(bits(new ShardedMLP({ ...size, seed: 7 }))).toEqual(whole)
    await loadBackend('wasm')
  })

  it('has different initial values with a different seed', () => {
    const [one, two] = [1, 2].map((seed) => bits(new ShardedMLP({ ...size, seed })))
    expect(one).not.toEqual(two)
  })

  it('allocates only the layers of its range, and frees them', () => {
    const before = tf.memory().numBytes
    const part = new ShardedMLP({ ...size, range: [1, 3] })
    expect(tf.memory().numBytes - before).toBe(4 * 2 * (8 * 8 + 8))
    disposeModule(part)
    expect(tf.memory().numBytes).toBe(before)
  })

  it('computes the same bits in parts as in one piece', () => {
    const x = tf.randomNormal([4, 12], 0, 1, 'float32', 1)
    const recipe = shardedMLP(size)
    const inParts = recipe.slice(2, 5).forward(recipe.slice(0, 2).forward(x))
    expect(inParts.shape).toEqual([4, 3])
    expect(inParts.dataSync()).toEqual(recipe.build().forward(x).dataSync())
  })

  it('has a ReLU between layers, but not at the end', () => {
    const x = tf.randomNormal([64, 12], 0, 1, 'float32', 1)
    const recipe = shardedMLP(size)
    const hidden = recipe.slice(0, 1).forward(x).dataSync()
    expect(Math.min(...hidden)).toBe(0)
    expect(Math.min(...recipe.build().forward(x).dataSync())).toBeLessThan(0)
  })

  it.each([
    [{ layers: 0 }, 'layers'],
    [{ hidden: 1.5 }, 'hidden'],
    [{ outputs: Number.NaN }, 'outputs'],
    [{ ...size, range: [2, 2] as const }, '[2, 2)'],
    [{ ...size, range: [3, 6] as const }, '[3, 6)'],
    [{ ...size, range: [-1, 2] as const }, '[-1, 2)'],
  ])('refuses %j', (options, part) => {
    expect(() => new ShardedMLP(options)).toThrow(
      expect.objectContaining({
        code: 'ERR_TSR_ARGUMENT',
        message: expect.stringContaining(part) as string,
      }),
    )
  })
})
