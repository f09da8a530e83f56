import { isAvailable } from '@tsrun/native'
import { endJobs, Job } from '../support/job.ts'
import { needing } from '../../needs.ts'

afterEach(endJobs)

const native = isAvailable()
const { describe: describeNative } = needing(native.available, 'bindings')

/** Runs a case of the program on three ranks. */
async function run(engine: string, what: string, env: NodeJS.ProcessEnv = {}): Promise<Job> {
  return await Job.start({
    size: 3,
    program: 'calling-thread-messages.mjs',
    env: { TSRUN_ENGINE: engine, WHAT: what, ...env },
  })
}

async function codesOf(job: Job, rank: number): Promise<unknown> {
  const { codes } = await job.ranks[rank]!.hear('codes')
  return codes
}

describeNative.each(['inline', 'worker'])('small messages, engine %s', (engine) => {
  it('arrive in order, however they are awaited', async () => {
    await (await run(engine, 'randomMessages', { STEPS: '1800' })).succeed()
  })

  it('wait for a late rank', async () => {
    await (await run(engine, 'late')).succeed()
  })

  it('arrive in order if there are more than mailboxes hold', async () => {
    await (await run(engine, 'flood')).succeed()
  })

  it('fail the group if the buffers have different lengths', async () => {
    const job = await run(engine, 'mismatch')
    expect(await codesOf(job, 1)).toEqual(['ERR_TSR_MISMATCH', 'ERR_TSR_MISMATCH'])
    expect(await codesOf(job, 0)).toEqual(['none', 'ERR_TSR_MISMATCH'])
  })

  it('are discarded if their receive has timed out', async () => {
    const job = await run(engine, 'timeouts')
    expect(await codesOf(job, 1)).toEqual(['ERR_TSR_OPERATION_TIMEOUT'])
    await job.succeed()
  })

  it('are discarded if their receive was aborted', async () => {
    const job = await run(engine, 'aborted')
    expect(await codesOf(job, 1)).toEqual([
      'ERR_TSR_OPERATION_ABORTED',
      'ERR_TSR_OPERATION_ABORTED',
    ])
    await job.succeed()
  })

  it('can be received after their sender has left', async () => {
    const [first, ...later] = (await codesOf(await run(engine, 'left'), 1)) as string[]
    expect(first).toBe('none')
    expect(later).toEqual(['ERR_TSR_PEER_LEFT', 'ERR_TSR_PEER_LEFT'])
  })

  it('fail if their sender is killed', async () => {
    const job = await run(engine, 'killed')
    // A rank may learn of the end before it begins to receive.
    const expected = expect.stringMatching(/^ERR_TSR_(PEER_LOST|PEER_FAILED|GROUP_FAILED)$/)
    for (const rank of [1, 2]) expect(await codesOf(job, rank)).toEqual([expected])
  })
})
