import fc from 'fast-check'
import { runWorld } from '@tsrun/distributed'
import { customSchedule, type Action } from '@tsrun/training/planning'
import { loadBackend, pipeline, shardedMLP, tf } from '@tsrun/training'
import { exampleBatch, excess, values, type Values } from '../../support/reference.ts'
import { hasCycle, randomLists } from '../../support/random-lists.ts'

const model = shardedMLP({ layers: 6, inputs: 5, hidden: 4, outputs: 3 })
const batch = { size: 6, ...exampleBatch(0, 6, 5, 3) }

beforeAll(async () => {
  await loadBackend('cpu')
})

async function gradientsOf(lists: Action[][] | undefined, seed: number): Promise<Values> {
  const ranks = await runWorld(
    { size: lists?.length ?? 1, seed, timeout: 20_000 },
    async (group) => {
      const schedule = lists === undefined ? 'gpipe' : customSchedule(lists)
      const pipe = pipeline(model, group, { schedule })
      const { gradients } = await pipe.forwardBackward(batch)
      const taken = values(gradients)
      tf.dispose([...gradients.values()])
      pipe.dispose()
      return taken
    },
  )
  return Object.assign({}, ...ranks) as Values
}

describe('random action lists', () => {
  it('run in the executor, with the gradients of a single process', async () => {
    const wanted = await gradientsOf(undefined, 0)
    const before = tf.memory().numTensors
    await fc.assert(
      fc.asyncProperty(randomLists, fc.nat({ max: 1000 }), async ({ lists }, seed) => {
        fc.pre(!hasCycle(lists))
        expect(excess(await gradientsOf(lists, seed), wanted)).toBeLessThanOrEqual(0)
        expect(tf.memory().numTensors).toBe(before)
      }),
      { numRuns: 150 },
    )
  })
})
