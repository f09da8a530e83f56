import { jest } from '@jest/globals'
import { runWorld } from '@tsrun/distributed'
import { describeRandomPrograms } from './support/random-programs.ts'

jest.setTimeout(240_000)

// More of them are in random-programs.slow.test.ts.
describeRandomPrograms(30, 10)

describe('the seed of a world', () => {
  /** The order in which the ranks of a world see their results. */
  async function trace(seed: number): Promise<string> {
    const order: string[] = []
    await runWorld({ size: 5, seed }, async (group) => {
      for (let i = 0; i < 20; i++) {
        const buffer = new Float32Array(i % 5 === 0 ? 30_000 : 100)
        const work = i % 2 === 0 ? group.allReduce(buffer) : group.broadcast(buffer, i % 5)
        await work
        order.push(`${group.rank}:${i}`)
      }
    })
    return order.join(' ')
  }

  it('determines the interleaving of its ranks', async () => {
    const traces = await Promise.all([1, 2, 3, 4, 5, 6].map(trace))
    expect(await Promise.all([1, 2, 3, 4, 5, 6].map(trace))).toEqual(traces)
    expect(new Set(traces).size).toBeGreaterThan(1)
  })
})
