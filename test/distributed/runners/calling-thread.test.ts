import { isAvailable } from '@tsrun/native'
import { endJobs, Job, type Said } from '../support/job.ts'
import { needing } from '../../needs.ts'

const native = isAvailable()
const { describe: describeNative } = needing(native.available, 'bindings')
const REFUSED = 'ERR_TSR_GROUP_FAILED'

/** In the order in which the ranks run them; the last ends the job. */
const CASES = 'random,repeated,late,alone,polled,mismatch,rooted,timeouts,aborted,failed,left'

/**
 * What a rank may see that calls after the others have given up: it is refused, or told. An engine on the
 * caller's thread may find all that the operation needs before it learns of that.
 */
function lateCode(engine: string): RegExp {
  return engine === 'inline' ? /^(none|ERR_TSR_(PEER|GROUP)_FAILED)$/ : /^ERR_TSR_GROUP_FAILED$/
}

describeNative.each(['inline', 'worker'])(
  'collectives on the caller’s thread, engine %s',
  (engine) => {
    let job: Job
    beforeAll(async () => {
      job = await Job.start({
        size: 3,
        program: 'calling-thread.mjs',
        env: { TSRUN_ENGINE: engine, WHAT: CASES, SEED: '1', STEPS: '300' },
      })
    })
    afterAll(endJobs)

    /** What the ranks say of a case when it has ended. */
    async function hear(what: string, ranks = job.ranks): Promise<Said[]> {
      return await Promise.all(ranks.map((each) => each.hear(what)))
    }

    // Each case checks its results in the ranks.
    it.each([
      ['give the right results, however they are awaited', 'random'],
      ['wait for a late rank', 'late'],
      ['complete on the other ranks while one rank computes', 'alone'],
      ['complete when a caller polls them from time to time', 'polled'],
    ])('%s', async (_, what) => {
      expect(await hear(what)).toHaveLength(3)
    })

    it('give the right results when blocking calls are repeated, and fail like fresh calls', async () => {
      for (const codes of (await hear('repeated')).map(codesOf)) {
        expect(codes.slice(0, 3)).toEqual(['none', 'none', 'none'])
        for (const code of codes.slice(3, 5))
          expect(code).toMatch(/^ERR_TSR_(MISMATCH|GROUP_FAILED|PEER_FAILED)$/)
        expect(codes[5]).toBe('ERR_TSR_GROUP_DESTROYED')
      }
    })

    it('detect a rank that calls another operation', async () => {
      const codes = (await hear('mismatch')).map(({ code }) => code)
      expect(codes).toContain('ERR_TSR_MISMATCH')
      for (const code of codes)
        expect(code).toMatch(/^ERR_TSR_(MISMATCH|GROUP_FAILED|PEER_FAILED)$/)
    })

    it('detect at the next call that a root has called another operation', async () => {
      const ranks = (await hear('rooted')).map(({ codes }) => codes as string[][])
      for (const group of [0, 1]) {
        const codes = ranks.map((each) => each[group]!)
        expect(codes[0]![0]).toBe('none')
        expect(codes.flat()).toContain('ERR_TSR_MISMATCH')
        for (const [, second] of codes)
          expect(second).toMatch(/^ERR_TSR_(MISMATCH|GROUP_FAILED|PEER_FAILED)$/)
      }
    })

    it('time out, and fail on ranks that call them later', async () => {
      const codes = (await hear('timeouts')).map(codesOf)
      for (const code of codes.slice(0, 2).flat()) {
        expect(code).toMatch(/^ERR_TSR_(OPERATION_TIMEOUT|PEER_FAILED|GROUP_FAILED)$/)
      }
      for (const code of codes[2]!) expect(code).toMatch(lateCode(engine))
    })

    it('can be aborted by a signal, and are refused afterwards', async () => {
      const codes = (await hear('aborted')).map(codesOf)
      expect(codes.map(([first]) => first)).toEqual([
        'ERR_TSR_OPERATION_ABORTED',
        'ERR_TSR_PEER_FAILED',
        expect.stringMatching(lateCode(engine)),
      ])
      expect(codes.map(([, second]) => second)).toEqual([REFUSED, REFUSED, REFUSED])
    })

    it('are refused after another operation has failed', async () => {
      for (const codes of (await hear('failed')).map(codesOf)) {
        expect(codes.slice(1)).toEqual([REFUSED, REFUSED])
      }
    })

    it('fail when a rank has left', async () => {
      for (const { code } of await hear('left', job.ranks.slice(0, 2)))
        expect(code).toMatch(/^ERR_TSR_(PEER_LEFT|PEER_FAILED|GROUP_FAILED)$/)
      await job.succeed()
    })
  },
)

function codesOf(said: Said): readonly string[] {
  return said['codes'] as string[]
}
