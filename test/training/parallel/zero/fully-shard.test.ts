import { initDeviceMesh, runWorld, type ProcessGroup } from '@tsrun/distributed'
import { excess, expectSame } from '../support/reference.ts'
import {
  describeSteps,
  isUsual,
  optimizers,
  replicas,
  sharded,
  stages,
  STEPS,
} from './support/fully-shard.ts'
import { trainSharded, type Trace } from './support/training.ts'

describeSteps(isUsual)

describe.each(stages)('fullyShard with %j', (how) => {
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
