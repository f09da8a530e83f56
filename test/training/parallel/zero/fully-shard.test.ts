import { jest } from '@jest/globals'
import { initDeviceMesh, runWorld, type ProcessGroup } from '@tsrun/distributed'
import { Adam, AdamW, loadBackend, SGD, tf, type FullyShardOptions } from '@tsrun/training'
import { excess, expectSame } from '../support/reference.ts'
import { trainReplica, trainSharded, type Trace, type Training } from './support/training.ts'

jest.setTimeout(120_000)

const optimizers = {
  SGD: () => new SGD({ learningRate: 0.1, momentum: 0.9 }),
  Adam: () => new Adam({ learningRate: 0.01 }),
  AdamW: () => new AdamW({ learningRate: 0.01, weightDecay: 0.1, withoutDecay: ['**.bias'] }),
}
const STEPS = 6

const stages = [
  { stage: 1 },
  { stage: 2 },
  { stage: 3 },
  { stage: 3, recompute: true },
  { stage: 3, reshardAfterForward: false },
] as const satisfies readonly FullyShardOptions[]

beforeAll(async () => {
  await loadBackend('wasm')
})

const references = new Map<string, Promise<Trace[]>>()

/** What dataParallel makes of the same, computed once for all stages. */
function replicas(size: number, training: Training, options: FullyShardOptions): Promise<Trace[]> {
  const key = JSON.stringify([size, training, options]) + String(training.optimizer)
  const trained =
    references.get(key) ??
    runWorld({ size, seed: 1 }, (group) => trainReplica(group, training, options))
  references.set(key, trained)
  return trained
}

const sharded = (size: number, training: Training, options: FullyShardOptions) =>
  runWorld({ size, seed: 2 }, (group) => trainSharded(group, group, training, options))

describe.each(stages)('fullyShard with %j', (how) => {
  it.each([
    { size: 1, name: 'SGD', options: {} },
    { size: 2, name: 'SGD', options: {} },
    { size: 2, name: 'Adam', options: { bucketBytes: 600, firstBucketBytes: 100 } },
    { size: 2, name: 'Adam', options: { wire: 'bfloat16' } },
    { size: 2, name: 'AdamW', options: { wire: 'float16', bucketBytes: 500 } },
    { size: 3, name: 'SGD', options: { deterministic: true, bucketBytes: 500 } },
    { size: 4, name: 'AdamW', options: { deterministic: true } },
  ] as const)(
    'makes bitwise the steps of dataParallel: $size ranks, $name, $options',
    async ({ size, name, options }) => {
      const before = tf.memory().numTensors
      const training = { steps: STEPS, optimizer: optimizers[name] }
      const wanted = await replicas(size, training, options)
      expectSame(await sharded(size, training, { ...options, ...how }), wanted)
      expect(tf.memory().numTensors).toBe(before)
    },
  )

  it('accumulates the same bits as dataParallel', async () => {
    const training = { steps: 3, optimizer: optimizers.SGD, passes: 3 }
    expectSame(await sharded(2, training, how), await replicas(2, training, {}))
  })

  it.each([{}, { wire: 'bfloat16' }] as const)(
    'shards state along one axis of a mesh, and replicates it along the other: %j',
    async (options) => {
      const training = { steps: STEPS, optimizer: optimizers.SGD }
      const layout = async (world: ProcessGroup): Promise<Trace> => {
        const { shard, replicate } = await initDeviceMesh({ replicate: 2, shard: 2 }, world)
        return await trainSharded(world, { shard, replicate }, training, { ...options, ...how })
      }
      const ranks = await runWorld({ size: 4, seed: 5 }, layout)
      const [wanted] = await replicas(4, training, options)
      const close = 'wire' in options ? 2 ** -4 : 1e-5
      for (const { parameters } of ranks) {
        expectSame(parameters, ranks[0]!.parameters)
        for (const [step, values] of parameters.entries()) {
          const over = excess(values, wanted!.parameters[step]!, close, close / 10)
          expect(over).toBeLessThanOrEqual(0)
        }
      }
    },
  )
})
