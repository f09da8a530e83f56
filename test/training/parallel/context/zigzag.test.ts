import { runWorld, type ProcessGroup } from '@tsrun/distributed'
import { GPT, gptPlan } from '@tsrun/models'
import {
  contextParallel,
  type CausalSelfAttention,
  loadBackend,
  parallelize,
  shardedMLP,
  zigzagPositions,
  type Module,
} from '@tsrun/training'

describe('zigzagPositions', () => {
  it.each([1, 2, 3, 4])('has each position once over %i ranks', (size) => {
    const length = 2 * size * 5
    const all = Array.from({ length: size }, (_, rank) => [
      ...zigzagPositions(length, { rank, size }),
    ])
    expect(all.flat().sort((a, b) => a - b)).toEqual(Array.from({ length }, (_, i) => i))
    // every rank sees as many pairs of tokens
    const work = all.map((positions) => positions.reduce((sum, position) => sum + position, 0))
    expect(new Set(work).size).toBe(1)
    for (const positions of all) expect(positions).toEqual([...positions].sort((a, b) => a - b))
  })

  it('has all positions, of any length, for one rank', () => {
    expect([...zigzagPositions(5, { rank: 0, size: 1 })]).toEqual([0, 1, 2, 3, 4])
  })

  it.each([0, 6, 9, 2.5])('refuses a length of %d for 2 ranks', (length) => {
    expect(() => zigzagPositions(length, { rank: 0, size: 2 })).toThrow(
      expect.objectContaining({ code: 'ERR_TSR_ARGUMENT' }),
    )
  })
})

describe('contextParallel', () => {
  beforeAll(() => loadBackend('wasm'))

  it('does not change a model in a group of one rank', async () => {
    await runWorld({ size: 1, seed: 1 }, (group) => {
      const model = new GPT({ layers: 1 })
      const attention = () => (model.children['h.0']!.children!['attn'] as CausalSelfAttention).core
      const core = attention()
      contextParallel(model, group)
      expect(attention()).toBe(core)
      return Promise.resolve()
    })
  })

  it.each([
    { what: 'has no sequences', make: () => shardedMLP({ layers: 1 }).build(), part: 'attention' },
    {
      what: 'already shards its sequences',
      make: (group: ProcessGroup): Module => {
        const model = new GPT()
        parallelize(model, gptPlan({ sequence: true }), group)
        return model
      },
      part: 'before parallelize',
    },
  ])('refuses a model that $what', async ({ make, part }) => {
    const [error] = await runWorld({ size: 2, seed: 1 }, (group) => {
      try {
        contextParallel(make(group), group)
        return Promise.resolve(undefined)
      } catch (failed) {
        return Promise.resolve(failed)
      }
    })
    expect(error).toMatchObject({
      code: 'ERR_TSR_ARGUMENT',
      message: expect.stringContaining(part) as string,
    })
  })
})
