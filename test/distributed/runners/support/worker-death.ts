import { endJobs, Job } from '../../support/job.ts'

/** What the calls of a rank promise after its engine thread has died, in these ways. */
export function describeWorkerDeath(transport: string, ways: readonly string[]): void {
  afterEach(endJobs)

  describe(`a rank whose engine thread has died (${transport})`, () => {
    it.each(ways)('gets an error from its calls, and its process continues: %s', async (how) => {
      const env = { TSRUN_TRANSPORT: transport, HOW: how }
      const job = await Job.start({ size: 2, program: 'worker-dies.mjs', env })
      const ends = await Promise.all(job.ranks.map((rank) => rank.hear('end')))
      expect(ends.map(({ code }) => code)).toEqual(['ERR_TSR_INTERNAL', 'ERR_TSR_INTERNAL'])
      await job.succeed()
    })
  })
}
