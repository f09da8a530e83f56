import { shardedMLP, contextParallel, loadBackend, zigzagPositions } from '@tsrun/training'
import { runWorld } from '@tsrun/distributed'

describe('zigzagPositions', () => {
  it.each([1, 2, 3, 4])('are, of %i ranks, each position once', (size) => {
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

  it.each([0, 6, 9, 2.5])('refuses a length of %d for 2 ranks', (length) => {
    expect(() => zigzagPositions(length, { rank: 0, size: 2 })).toThrow(
      expect.objectContaining({ code: 'ERR_TSR_ARGUMENT' }),
    )
  })
})

describe('contextParallel', () => {
  it('refuses a model that sees no sequences', async () => {
    await loadBackend('wasm')
    const [error] = await runWorld({ size: 1, seed: 1 }, (group) => {
      try {
        contextParallel(shardedMLP({ layers: 1 }).build(), group)
        return Promise.resolve(undefined)
      } catch (failure) {
        return Promise.resolve(failure)
      }
    })
    expect(error).toMatchObject({ code: 'ERR_TSR_ARGUMENT' })
  })
})
