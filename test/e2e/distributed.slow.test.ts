import { jest } from '@jest/globals'
import { endJobs, Job } from '../distributed/support/job.ts'
import { otherWorlds, worlds } from '../distributed/support/worlds.ts'
import { describeGrowth, describeProcesses } from './support/processes.ts'

jest.setTimeout(120_000)
afterEach(endJobs)

describeProcesses(otherWorlds)
describeGrowth(worlds)

it('ranks with different transports and engines work together', async () => {
  const envOf = (rank: number) => worlds[rank]!.env
  const job = await Job.start({ size: worlds.length, program: 'everything.mjs', envOf })
  await job.succeed()
})
