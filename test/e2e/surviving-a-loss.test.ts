import { endJobs, Job } from '../distributed/support/job.ts'
import { usualWorlds } from '../distributed/support/worlds.ts'
import { arena, describeSurviving } from './support/surviving.ts'

afterEach(endJobs)

describeSurviving(usualWorlds)

it('reconfigure names the rank that does not come back', async () => {
  const env = { ...usualWorlds[0]!.env, ...arena, TIMEOUT: '2000' }
  const job = await Job.start({ size: 3, program: 'reconfigure.mjs', env })
  for (const rank of job.ranks) await rank.hear('generation 0')
  job.ranks[1]!.child.kill('SIGKILL')
  for (const rank of [0, 2]) {
    const said = await job.ranks[rank]!.hear('refused')
    expect(said).toMatchObject({ code: 'ERR_TSR_TIMEOUT' })
    expect(said.message).toContain('waiting for rank 1 to join the job')
  }
})

it('a restarted process says what it waits for', async () => {
  const job = await Job.start({ size: 2, program: 'join.mjs', env: { ...arena, TIMEOUT: '2000' } })
  await job.succeed()
  const said = await job.startRank(1).hear('failed')
  expect(said).toMatchObject({ code: 'ERR_TSR_TIMEOUT' })
  expect(said.message).toContain('rank 1, which was in the job before')
  expect(said.message).toContain('reconfigure()')
})
