import { Job, startProgram } from '../../distributed/support/job.ts'
import type { World } from '../../distributed/support/worlds.ts'

/** What ranks in processes of their own can do. */
export function describeProcesses(worlds: readonly World[]): void {
  describe.each(worlds)('ranks in processes of their own ($name)', ({ env }) => {
    it('run every operation, gather, scatter and exchange', async () => {
      const job = await Job.start({ size: 3, program: 'all-operations.mjs', env })
      await job.succeed()
      for (const { said } of job.ranks) {
        expect(said.map(({ word }) => word).filter((word) => word === 'done')).toHaveLength(2)
      }
    })
  })
}

/** Ranks must not grow in any world. */
export function describeGrowth(worlds: readonly World[]): void {
  describe.each(worlds)('ranks in processes of their own ($name)', ({ env }) => {
    it('do not grow over many small operations', async () => {
      // a small young generation: what the engine's thread drops is collected within a few rounds
      const flags = ['--expose-gc', '--max-semi-space-size=1']
      const job = await Job.start({ size: 2, program: 'many.mjs', env, flags })
      await job.succeed()
      for (const rank of job.ranks) {
        const { growth } = await rank.hear('done')
        // what leaks grows in every round; a heap that settles does not
        expect(Math.min(...(growth as number[]))).toBeLessThan(256 * 1024)
      }
    })
  })
}

/** `environments` are those of a process that no launcher started. */
export function describeAlone(environments: readonly NodeJS.ProcessEnv[]): void {
  it.each(environments)(
    'a process without a launcher forms a world of size one: %j',
    async (env) => {
      const alone = startProgram('alone.mjs', env)
      expect(await alone.hear('done')).toMatchObject({
        codes: [
          'ERR_TSR_NOT_INITIALIZED',
          'ERR_TSR_ALREADY_INITIALIZED',
          'ERR_TSR_ALREADY_INITIALIZED',
          'ERR_TSR_NOT_INITIALIZED',
        ],
      })
      expect((await alone.end()).code).toBe(0)
    },
  )
}
