import {
  Adam,
  AdamW,
  createTensor,
  loadBackend,
  SGD,
  tf,
  viewOf,
  type Optimizer,
  type Parameter,
} from '@tsrun/training'

// 257 values: whole vectors and a rest.
const LENGTH = 257

const random = (seed: number) =>
  tf.tidy(() => tf.randomNormal([LENGTH], 0, 1, 'float32', seed).dataSync<'float32'>())

/** The values of a parameter after each of a few steps. */
function train(optimizer: Optimizer, gradientAs: 'tensor' | 'array'): Float32Array[] {
  const parameter: Parameter = { name: 'p', shape: [LENGTH], value: tf.tensor1d(random(1)) }
  const steps = [2, 3, 4, 5].map((seed) => {
    const gradient = gradientAs === 'array' ? random(seed) : tf.tensor1d(random(seed))
    optimizer.step([parameter], new Map([['p', gradient]]))
    return viewOf(parameter.value).slice()
  })
  parameter.value.dispose()
  return steps
}

describe('the fused update on wasm', () => {
  const cases: [string, () => Optimizer][] = [
    ['SGD', () => new SGD({ learningRate: 0.1 })],
    ['SGD with momentum', () => new SGD({ learningRate: 0.1, momentum: 0.9 })],
    [
      'SGD with all options',
      () => new SGD({ learningRate: 0.1, momentum: 0.9, weightDecay: 0.1, nesterov: true }),
    ],
    ['SGD with weight decay', () => new SGD({ learningRate: 0.1, weightDecay: 0.1 })],
    ['Adam with weight decay', () => new Adam({ learningRate: 0.02, weightDecay: 0.1 })],
    ['Adam', () => new Adam({ learningRate: 0.02 })],
    ['AdamW', () => new AdamW({ learningRate: 0.02, weightDecay: 0.1 })],
  ]

  it.each(cases)('of %s gives the same bits as plain JavaScript', async (_, make) => {
    await loadBackend('cpu')
    const expected = train(make(), 'tensor')
    await loadBackend('wasm')
    expect(train(make(), 'tensor')).toEqual(expected)
    expect(train(make(), 'array')).toEqual(expected)
  })

  it.each(cases)('of %s keeps its state when the memory grows', async (_, make) => {
    await loadBackend('wasm')
    const [optimizer, undisturbed] = [make(), make()]
    const expected = [train(undisturbed, 'tensor'), train(undisturbed, 'tensor')]
    const first = train(optimizer, 'tensor')
    const heap = viewOf(tf.ones([1])).buffer
    const large = createTensor([heap.byteLength / 4], () => undefined)
    expect(heap.byteLength).toBe(0)
    expect([first, train(optimizer, 'tensor')]).toEqual(expected)
    large.dispose()
  })

  it.each(cases)(
    'of %s uses the memory of a gradient only if no other tensor shares it',
    async (_, make) => {
      await loadBackend('wasm')
      const parameter: Parameter = { name: 'p', shape: [LENGTH], value: tf.tensor1d(random(1)) }
      const gradient = tf.tensor1d(random(2))
      const clone = tf.clone(gradient)
      make().step([parameter], new Map([['p', gradient]]))
      expect(gradient.isDisposed).toBe(true)
      expect(clone.dataSync()).toEqual(random(2))
      const [expected] = train(make(), 'tensor')
      gradient.dispose()
      expect(parameter.value.dataSync()).toEqual(expected)
    },
  )
})
