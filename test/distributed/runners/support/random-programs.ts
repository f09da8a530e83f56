import { runWorld } from '@tsrun/distributed'
import fc from 'fast-check'
import { hostsOf } from '../../support/host-layouts.ts'
import { programs, runProgram, type Program } from '../../support/programs.ts'

async function run(program: Program): Promise<void> {
  const { size, seed } = program
  await runWorld(
    { size, seed, memory: 96 * 1024 * 1024, hosts: hostsOf(program) },
    async (world) => {
      await runProgram(world, program)
    },
  )
}

/** What random programs promise, with this many of them, and one of them with this many seeds. */
export function describeRandomPrograms(numRuns: number, seeds: number): void {
  describe('random programs', () => {
    it(`give the results of the sequential reference in any interleaving, ${numRuns} programs`, async () => {
      await fc.assert(fc.asyncProperty(programs, run), { numRuns })
    })

    it(`give the same results with ${seeds} seeds`, async () => {
      const [program] = fc.sample(programs, { numRuns: 1, seed: 20_260_101 })
      for (let seed = 0; seed < seeds; seed++) await run({ ...program!, seed })
    })
  })
}
