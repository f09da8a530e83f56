import * as tfjs from '@tensorflow/tfjs'
import { denseNames, ownerOfLayers, ownerOfTrainOptimizer } from '@tsrun/layers'
import {
  Adam,
  loadBackend,
  loadCheckpoint,
  saveCheckpoint,
  SGD,
  shardedMLP,
  tf,
} from '@tsrun/training'
import { makeFolder, removeFolders } from '../training/checkpoint/support/folder.ts'

afterEach(removeFolders)
beforeAll(async () => {
  await loadBackend('cpu')
})

/** Its layers have other names, and so have its variables, every time. */
function build(units = 7): tfjs.Sequential {
  return tfjs.sequential({
    layers: [
      tfjs.layers.dense({ inputShape: [5], units, activation: 'tanh' }),
      tfjs.layers.dense({ units: 3 }),
    ],
  })
}

function fresh(makeOptimizer: () => tfjs.Optimizer, units?: number) {
  const [model, optimizer] = [build(units), makeOptimizer()]
  model.compile({ optimizer, loss: 'meanSquaredError' })
  const fit = async (): Promise<void> => {
    const x = tf.tidy(() => tf.sin(tf.reshape(tf.range(0, 40), [8, 5])))
    const y = tf.tidy(() => tf.cos(tf.reshape(tf.range(0, 24), [8, 3])))
    const options = { batchSize: 4, epochs: 3, shuffle: false, verbose: 0 as const }
    await model.fit(x, y, options)
    tf.dispose([x, y])
  }
  const state = () => ({
    model: ownerOfLayers(model, denseNames),
    optimizer: ownerOfTrainOptimizer(optimizer, model, denseNames),
  })
  const values = () => model.getWeights().map((weight) => [...weight.dataSync()])
  return { model, optimizer, fit, state, values }
}

const kinds: [string, () => tfjs.Optimizer][] = [
  ['sgd', () => tf.train.sgd(0.1)],
  ['momentum', () => tf.train.momentum(0.1, 0.9)],
  ['adam', () => tf.train.adam(0.01)],
  ['rmsprop', () => tf.train.rmsprop(0.01, 0.9, 0.5)],
  // TensorFlow.js subtracts epsilon below the root, so the default makes NaN of small gradients.
  ['centered rmsprop', () => tf.train.rmsprop(0.01, 0.9, 0.5, 0, true)],
  ['adagrad', () => tf.train.adagrad(0.1)],
  ['adadelta', () => tf.train.adadelta(0.1)],
]

it.each(kinds)('fit continues from a checkpoint with the state of %s', async (_, make) => {
  const folder = makeFolder()
  const [first, second] = [fresh(make), fresh(make)]
  await first.fit()
  await saveCheckpoint(folder, { ...first.state(), step: 6 })
  await loadCheckpoint(folder, second.state())
  expect(second.values()).toEqual(first.values())
  expect(second.optimizer.iterations).toBe(6)
  await first.fit()
  await second.fit()
  expect(second.values()).toEqual(first.values())
})

it('an optimizer that has made no step can be saved and loaded', async () => {
  const folder = makeFolder()
  const make = () => tf.train.adam(0.01)
  const [first, second] = [fresh(make), fresh(make)]
  await second.fit()
  await saveCheckpoint(folder, { ...first.state(), step: 0 })
  await loadCheckpoint(folder, second.state())
  expect(second.optimizer.iterations).toBe(0)
  await first.fit()
  await second.fit()
  expect(second.values()).toEqual(first.values())
})

it.each([
  ['Adam', () => tf.train.adam(0.01), new Adam(), ['mean', 'square']],
  [
    'SGD',
    () => tf.train.momentum(0.1, 0.9),
    new SGD({ learningRate: 1, momentum: 0.9 }),
    ['velocity'],
  ],
] as const)(
  "%s and its tf.train counterpart continue from each other's checkpoints",
  async (_, make, ours, names) => {
    const folder = makeFolder()
    const first = fresh(make)
    await first.fit()
    await saveCheckpoint(folder, { ...first.state(), step: 6 })
    const model = shardedMLP({ layers: 2, inputs: 5, hidden: 7, outputs: 3 }).build()
    await loadCheckpoint(folder, { model, optimizer: ours })
    const { steps, values } = (await ours.state()).get('layers.1.bias')!
    expect(steps).toBe(6)
    expect(Object.keys(values)).toEqual(names)

    await saveCheckpoint(folder, { model, optimizer: ours, step: 7 })
    const second = fresh(make)
    await loadCheckpoint(folder, second.state())
    await first.fit()
    await second.fit()
    expect(second.values()).toEqual(first.values())
  },
)

describe('the state of a tf.train optimizer', () => {
  it('is refused if it cannot be read', () => {
    const { state } = fresh(() => tf.train.adamax(0.1))
    expect(state).toThrow(/optimizer is Adamax; expected one of SGD, Momentum/)
  })

  it('is refused if its optimizer has trained another model', async () => {
    const { optimizer, fit } = fresh(() => tf.train.adam(0.01))
    await fit()
    const owner = ownerOfTrainOptimizer(optimizer, build())
    await expect(Promise.resolve().then(() => owner.pieces())).rejects.toMatchObject({
      code: 'ERR_TSR_ARGUMENT',
    })
  })

  it('is refused by another kind of optimizer, and changes nothing', async () => {
    const folder = makeFolder()
    const first = fresh(() => tf.train.adam(0.01))
    await first.fit()
    await saveCheckpoint(folder, { ...first.state(), step: 6 })
    const second = fresh(() => tf.train.momentum(0.1, 0.9))
    const before = second.values()
    await expect(loadCheckpoint(folder, second.state())).rejects.toThrow(
      /state of layers.0.weight is 6 steps, mean, square; expected 6 steps, velocity/,
    )
    expect(second.values()).toEqual(before)
  })
})
