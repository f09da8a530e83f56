import fc from 'fast-check'
import { runWorld } from '@tsrun/distributed'
import { customSchedule, type Action } from '@tsrun/training/planning'
import { loadBackend, pipeline, shardedMLP, tf } from '@tsrun/training'
import { failure } from '../../support/failure.ts'
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
  it('never deadlock if they are valid, and are impossible if they are not', () => {
    const seen = { valid: 0, refused: 0 }
    fc.assert(
      fc.property(randomLists, ({ lists, possible }) => {
        const impossible = hasCycle(lists)
        expect(impossible && possible).toBe(false)
        seen[impossible ? 'refused' : 'valid'] += 1
        if (impossible) {
          expect(() => customSchedule(lists)).toThrow(
            failure('ERR_TSR_SCHEDULE', /rank \d, action \d+: \S+ waits for ever/),
          )
        } else {
          const made = customSchedule(lists)
          const { spans } = made.simulate({ forward: 2, backward: 3, transfer: 1, cores: 2 })
          expect(spans).toHaveLength(lists.flat().length)
        }
      }),
      { numRuns: 400 },
    )
    expect(Math.min(seen.valid, seen.refused)).toBeGreaterThan(40)
  })

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

  it('are refused with one action too many, one too few, or one on the wrong rank', () => {
    fc.assert(
      fc.property(randomLists, fc.nat(), ({ lists }, at) => {
        fc.pre(!hasCycle(lists))
        const rank = at % lists.length
        const place = at % lists[rank]!.length
        const change = (edit: (list: Action[]) => void): Action[][] => {
          const copy = lists.map((list) => [...list])
          edit(copy[rank]!)
          return copy
        }
        const action = lists[rank]![place]!
        const twice = change((list) => list.splice(place, 0, action))
        expect(() => customSchedule(twice)).toThrow(failure('ERR_TSR_SCHEDULE', /runs twice/))
        const without = change((list) => list.splice(place, 1))
        expect(() => customSchedule(without)).toThrow(failure('ERR_TSR_SCHEDULE'))
        if (lists.length === 1 || lists[rank]!.every(({ stage }) => stage !== action.stage)) return
        const moved = change((list) => list.splice(place, 1))
        moved[(rank + 1) % lists.length]!.push(action)
        const others = moved[rank]!.some(({ stage }) => stage === action.stage)
        if (others) expect(() => customSchedule(moved)).toThrow(failure('ERR_TSR_SCHEDULE'))
      }),
      { numRuns: 200 },
    )
  })
})
