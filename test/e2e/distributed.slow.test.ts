import { createServer, type AddressInfo } from 'node:net'
import { once } from 'node:events'
import { endJobs, Job, startProgram } from '../distributed/support/job.ts'
import { otherWorlds, worlds } from '../distributed/support/worlds.ts'
import { describeAlone, describeGrowth, describeProcesses } from './support/processes.ts'

afterEach(endJobs)

describeProcesses(otherWorlds)
// All worlds are in distributed.nightly.test.ts.
describeGrowth(otherWorlds.slice(0, 1))
describeAlone([{ TSRUN_ENGINE: 'inline' }, { TSRUN_NATIVE: 'off' }])

it('ranks with different transports and engines work together', async () => {
  const envOf = (rank: number) => worlds[rank]!.env
  const job = await Job.start({ size: worlds.length, program: 'everything.mjs', envOf })
  await job.succeed()
})

it('ranks in separate processes join without a launcher, with the store in rank 0', async () => {
  const holder = createServer().listen(0, '127.0.0.1')
  await once(holder, 'listening')
  const { port } = holder.address() as AddressInfo
  holder.close()
  const ranks = [0, 1, 2].map((rank) =>
    startProgram('join.mjs', {
      RANK: String(rank),
      WORLD_SIZE: '3',
      MASTER_ADDR: '127.0.0.1',
      MASTER_PORT: String(port),
    }),
  )
  for (const rank of ranks) {
    expect(await rank.hear('met')).toMatchObject({ sum: 3, size: 3 })
    expect((await rank.end()).code).toBe(0)
  }
})

it('ranks in separate processes print nothing by themselves, for any number of ranks', async () => {
  // without shared memory each connects with all others
  const env = { TSRUN_TRANSPORT: 'tcp' }
  const job = await Job.start({ size: 13, program: 'join.mjs', env })
  for (const rank of job.ranks) {
    expect((await rank.end()).code).toBe(0)
    expect(rank.output).not.toContain('Warning')
  }
})
