import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { endJobs, Job } from '../distributed/support/job.ts'

afterEach(endJobs)

const folder = mkdtempSync(join(tmpdir(), 'tsrun-tuning-'))
afterAll(() => {
  rmSync(folder, { recursive: true })
})

const ladder = [{ upTo: 4, algorithm: 'direct' }, { algorithm: 'binomial-tree' }]
const tuning = join(folder, 'tuning.json')
writeFileSync(
  tuning,
  JSON.stringify({
    version: 1,
    sockets: { reduce: ladder },
    sharedMemory: { reduce: ladder },
  }),
)

describe('a tuning file', () => {
  it.each([
    { TSRUN_TRANSPORT: 'shared-memory', TSRUN_ENGINE: 'worker' },
    { TSRUN_TRANSPORT: 'tcp', TSRUN_ENGINE: 'inline' },
  ])('chooses the algorithms of all ranks with %j', async (world) => {
    const env = { ...world, TSRUN_TUNING: tuning }
    const job = await Job.start({ size: 2, program: 'tuned.mjs', env })
    for (const rank of job.ranks) {
      const said = await rank.hear('failed')
      expect(said.code).toBe('ERR_TSR_MISMATCH')
      expect(said.message).toContain('reduce(sum, root 0) float32[8192] by direct')
      expect(said.message).toContain('reduce(sum, root 0) float32[8192] by binomial-tree')
    }
  })

  it('that only some ranks have is refused by all ranks', async () => {
    const envOf = (rank: number) => ({ TSRUN_TUNING: rank === 1 ? tuning : '' })
    const job = await Job.start({ size: 3, program: 'join.mjs', envOf })
    for (const rank of job.ranks) {
      const said = await rank.hear('failed')
      expect(said.code).toBe('ERR_TSR_TUNING_DIFFERS')
      expect(said.message).toContain(tuning)
      expect(said.message).toContain('the built-in thresholds')
    }
  })

  it('that is missing is named in the error', async () => {
    const env = { TSRUN_TUNING: join(folder, 'nowhere.json') }
    const job = await Job.start({ size: 2, program: 'join.mjs', env })
    for (const rank of job.ranks) {
      expect(await rank.hear('failed')).toMatchObject({
        code: 'ERR_TSR_TUNING',
        facts: { path: env.TSRUN_TUNING },
      })
    }
  })
})
