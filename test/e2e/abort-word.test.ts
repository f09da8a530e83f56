import { isAvailable } from '@tsrun/native'
import { StatusPage } from '@tsrun/distributed/record'
import { endJobs, Job } from '../distributed/support/job.ts'
import { needing } from '../needs.ts'

afterEach(endJobs)

const ways = [
  { name: 'worker engine', env: { TSRUN_ENGINE: 'worker' } },
  { name: 'inline engine', env: { TSRUN_ENGINE: 'inline' } },
]

const identity = {
  runId: 'test',
  script: 'blocked.mjs',
  worldSize: 2,
  restartCount: 0,
  slots: 2,
  socket: undefined,
}

const hasPage = process.platform === 'linux' && isAvailable().available
const describeLinux = needing(hasPage, 'Linux with koffi').describe.each(ways)

describeLinux('the abort word ($name)', ({ env }) => {
  it('ends a blocking operation although the rank that it names is still connected', async () => {
    const page = new StatusPage(identity)
    try {
      const pageEnv = { ...env, TSRUN_STATUS_PAGE: page.path }
      const job = await Job.start({ size: 2, program: 'blocked.mjs', env: pageEnv })
      await Promise.all(job.ranks.map((rank) => rank.hear('blocks')))
      page.abort(1)
      const { code, message } = await job.ranks[0]!.hear('failed')
      expect(code).toBe('ERR_TSR_PEER_LOST')
      expect(message).toContain('Rank 1 is gone (its launcher has seen its end)')
    } finally {
      page.close()
    }
  })
})
