import { jest } from '@jest/globals'
import { isAvailable } from '@tsrun/native'
import { endJobs, Job } from '../support/job.ts'

jest.setTimeout(60_000)

afterEach(endJobs)

const transports = isAvailable().available ? ['tcp', 'node'] : ['node']

describe.each(transports)('a rank whose engine thread has died (%s)', (transport) => {
  it.each(['flood', 'blocked', 'awaited', 'later'])(
    'gets an error from its calls, and its process continues: %s',
    async (how) => {
      const env = { TSRUN_TRANSPORT: transport, HOW: how }
      const job = await Job.start({ size: 2, program: 'worker-dies.mjs', env })
      const ends = await Promise.all(job.ranks.map((rank) => rank.hear('end')))
      expect(ends.map(({ code }) => code)).toEqual(['ERR_TSR_INTERNAL', 'ERR_TSR_INTERNAL'])
      await job.succeed()
    },
  )
})
