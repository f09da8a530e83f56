import { endJobs, Job } from '../distributed/support/job.ts'
import { usualWorlds } from '../distributed/support/worlds.ts'
import { describeAlone, describeProcesses } from './support/processes.ts'

afterEach(endJobs)

describeProcesses(usualWorlds)
describeAlone([{}])

describe('ranks in separate processes', () => {
  it('work without koffi', async () => {
    const env = { TSRUN_NATIVE: 'off' }
    const job = await Job.start({ size: 2, program: 'everything.mjs', env })
    await job.succeed()
  })

  it('say why tcp cannot be used without koffi', async () => {
    const env = { TSRUN_NATIVE: 'off', TSRUN_TRANSPORT: 'tcp' }
    const job = await Job.start({ size: 2, program: 'join.mjs', env })
    for (const rank of job.ranks) {
      const said = await rank.hear('failed')
      expect(said).toMatchObject({
        code: 'ERR_TSR_TRANSPORT_UNAVAILABLE',
        facts: { transport: 'tcp' },
      })
      expect(said.message).toContain('TSRUN_NATIVE')
    }
  })

  it('say that the inline engine needs tcp', async () => {
    const env = { TSRUN_ENGINE: 'inline', TSRUN_TRANSPORT: 'node' }
    const job = await Job.start({ size: 2, program: 'join.mjs', env })
    const said = await job.ranks[0]!.hear('failed')
    expect(said.code).toBe('ERR_TSR_TRANSPORT_UNAVAILABLE')
  })

  it('join again after all have left', async () => {
    const job = await Job.start({ size: 2, program: 'join-again.mjs' })
    for (const rank of job.ranks) {
      const met = [0, 1, 2].map((generation) => ({ sum: 1 + 2 * generation, generation }))
      expect(await rank.hear('met')).toMatchObject({ met })
    }
    await job.succeed()
  })

  it('refuse operations above the queue limit, and continue', async () => {
    const job = await Job.start({ size: 2, program: 'outstanding.mjs' })
    expect(await job.ranks[0]!.hear('full')).toMatchObject({
      count: 4096,
      code: 'ERR_TSR_TOO_MANY_OPERATIONS',
    })
    await job.ranks[1]!.hear('ready')
    job.ranks[1]!.child.kill('SIGUSR2')
    await job.succeed()
  })

  it('tolerate a spurious wake-up', async () => {
    const job = await Job.start({ size: 2, program: 'spurious.mjs' })
    await job.succeed()
  })
})
