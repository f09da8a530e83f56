import { jest } from '@jest/globals'
import { runWorld } from '@tsrun/distributed'
import fc from 'fast-check'
import { hostsOf } from '../support/host-layouts.ts'
import { programs, runProgram, type Program } from '../support/programs.ts'

jest.setTimeout(240_000)

async function run(program: Program): Promise<void> {
  const { size, seed } = program
  await runWorld(
    { size, seed, memory: 96 * 1024 * 1024, hosts: hostsOf(program) },
    async (world) => {
      await runProgram(world, program)
    },
  )
}

describe('random programs', () => {
  it('give the results of the sequential reference in any interleaving', async () => {
    await fc.assert(fc.asyncProperty(programs, run), { numRuns: 120 })
  })

  it('give the same results with many seeds', async () => {
    const [program] = fc.sample(programs, { numRuns: 1, seed: 20_260_101 })
    for (let seed = 0; seed < 30; seed++) await run({ ...program!, seed })
  })
})

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
