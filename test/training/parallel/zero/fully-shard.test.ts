import { jest } from '@jest/globals'
import { runWorld } from '@tsrun/distributed'
import { Adam, loadBackend, SGD, tf } from '@tsrun/training'
import { trainReplica, trainSharded } from './support/training.ts'

jest.setTimeout(60_000)

const optimizers = {
  SGD: () => new SGD({ learningRate: 0.1, momentum: 0.9 }),
  Adam: () => new Adam({ learningRate: 0.01 }),
}
const STEPS = 10

beforeAll(async () => {
  await loadBackend('wasm')
})

describe.each([
  { stage: 1 },
  { stage: 2 },
  { stage: 3 },
  { stage: 3, recompute: true },
  { stage: 3, reshardAfterForward: false },
] as const)('fullyShard with %j', (how) => {
  it.each([
    { size: 1, name: 'SGD', options: {} },
    { size: 2, name: 'SGD', options: {} },
    { size: 2, name: 'Adam', options: {} },
    { size: 2, name: 'Adam', options: { bucketBytes: 600, firstBucketBytes: 100 } },
    { size: 2, name: 'Adam', options: { wire: 'bfloat16' } },
    { size: 3, name: 'SGD', options: { deterministic: true, bucketBytes: 500 } },
    { size: 4, name: 'Adam', options: { deterministic: true } },
  ] as const)(
    'makes the steps of dataParallel to the bit: $size ranks, $name, $options',
    async ({ size, name, options }) => {
      const before = tf.memory().numTensors
      const training = { steps: STEPS, optimizer: optimizers[name] }
      const wanted = await runWorld({ size, seed: 1 }, (group) =>
        trainReplica(group, training, options),
      )
      const found = await runWorld({ size, seed: 2 }, (group) =>
        trainSharded(group, group, training, { ...options, ...how }),
      )
      expect(found).toEqual(wanted)
      expect(tf.memory().numTensors).toBe(before)
    },
  )
})
