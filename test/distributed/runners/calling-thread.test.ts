import { jest } from '@jest/globals'
import { isAvailable } from '@tsrun/native'
import { endJobs, Job } from '../support/job.ts'
import { needing } from '../../needs.ts'

jest.setTimeout(120_000)

afterEach(endJobs)

const native = isAvailable()
const { describe: describeNative } = needing(native.available, 'bindings')
const REFUSED = 'ERR_TSR_GROUP_FAILED'

/** Runs a case of the program on three ranks. */
async function run(engine: string, what: string, env: NodeJS.ProcessEnv = {}): Promise<Job> {
  return await Job.start({
    size: 3,
    program: 'calling-thread.mjs',
    env: { TSRUN_ENGINE: engine, WHAT: what, ...env },
  })
}

/**
 * What a rank may see that calls after the others have given up: it is refused, or told. An engine on the
 * caller's thread may find all that the operation needs before it learns of that.
 */
function lateCode(engine: string): RegExp {
  return engine === 'inline' ? /^(none|ERR_TSR_(PEER|GROUP)_FAILED)$/ : /^ERR_TSR_GROUP_FAILED$/
}

async function hear(job: Job, word: string, fact: string): Promise<unknown[]> {
  const said = await Promise.all(job.ranks.map((each) => each.hear(word)))
  return said.map((each) => each[fact])
}

describeNative.each(['inline', 'worker'])(
  'collectives on the caller’s thread, engine %s',
  (engine) => {
    it.each([1, 2])('give the right results, however they are awaited: seed %s', async (seed) => {
      const job = await run(engine, 'random', { SEED: String(seed), STEPS: '300' })
      await job.succeed()
    })

    it('wait for a late rank', async () => {
      await (await run(engine, 'late')).succeed()
    })

    it('complete on the other ranks while one rank computes', async () => {
      await (await run(engine, 'alone')).succeed()
    })

    it('complete when a caller polls them from time to time', async () => {
      await (await run(engine, 'polled')).succeed()
    })

    it('detect a rank that calls another operation', async () => {
      const codes = await hear(await run(engine, 'mismatch'), 'code', 'code')
      expect(codes).toContain('ERR_TSR_MISMATCH')
      for (const code of codes)
        expect(code).toMatch(/^ERR_TSR_(MISMATCH|GROUP_FAILED|PEER_FAILED)$/)
    })

    it('time out, and fail on ranks that call them later', async () => {
      const codes = (await hear(await run(engine, 'timeouts'), 'codes', 'codes')) as string[][]
      for (const code of codes.slice(0, 2).flat()) {
        expect(code).toMatch(/^ERR_TSR_(OPERATION_TIMEOUT|PEER_FAILED|GROUP_FAILED)$/)
      }
      for (const code of codes[2]!) expect(code).toMatch(lateCode(engine))
    })

    it('can be aborted by a signal, and are refused afterwards', async () => {
      const codes = (await hear(await run(engine, 'aborted'), 'codes', 'codes')) as string[][]
      expect(codes.map(([first]) => first)).toEqual([
        'ERR_TSR_OPERATION_ABORTED',
        'ERR_TSR_PEER_FAILED',
        expect.stringMatching(lateCode(engine)),
      ])
      expect(codes.map(([, second]) => second)).toEqual([REFUSED, REFUSED, REFUSED])
    })

    it('are refused after another operation has failed', async () => {
      const codes = (await hear(await run(engine, 'failed'), 'codes', 'codes')) as string[][]
      for (const of of codes) {
        expect(of.slice(1)).toEqual([REFUSED, REFUSED])
      }
    })

    it('fail when a rank has left', async () => {
      const job = await run(engine, 'left')
      const said = await Promise.all(job.ranks.slice(0, 2).map((each) => each.hear('code')))
      for (const { code } of said)
        expect(code).toMatch(/^ERR_TSR_(PEER_LEFT|PEER_FAILED|GROUP_FAILED)$/)
    })
  },
)
