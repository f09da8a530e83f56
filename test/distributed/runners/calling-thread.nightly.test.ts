import { isAvailable } from '@tsrun/native'
import { endJobs, Job } from '../support/job.ts'
import { needing } from '../../needs.ts'

afterEach(endJobs)

const { describe: describeNative } = needing(isAvailable().available, 'bindings')

// Seed 1 is in calling-thread.test.ts.
describeNative.each(['inline', 'worker'])(
  'collectives on the caller’s thread, engine %s',
  (engine) => {
    it.each([2, 3])('give the right results, however they are awaited: seed %s', async (seed) => {
      const job = await Job.start({
        size: 3,
        program: 'calling-thread.mjs',
        env: { TSRUN_ENGINE: engine, WHAT: 'random', SEED: String(seed), STEPS: '300' },
      })
      await job.succeed()
    })
  },
)
