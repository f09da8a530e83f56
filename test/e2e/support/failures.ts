import { connect, type Socket } from 'node:net'
import { once } from 'node:events'
import { clientHandshake } from '@tsrun/core'
import { Job, monotonic, type Said } from '../../distributed/support/job.ts'
import type { World } from '../../distributed/support/worlds.ts'

/** Which cases of each promise are checked. */
export interface FailureCases {
  /** In which calls ranks wait for a rank that is killed. */
  readonly waits: readonly string[]
  /** How a rank ends that is reported as lost. */
  readonly losses: readonly string[]
  /** How a process ends that has to disappear, and its exit code. */
  readonly ends: readonly (readonly [end: string, code: number])[]
  /** How a process ends that has just sent messages. */
  readonly lastWords: readonly string[]
}

const allFailures: FailureCases = {
  waits: ['collective', 'receive,neighbour,awaited', 'send,object'],
  losses: ['throw', 'exit'],
  ends: [
    ['destroy', 0],
    ['exit', 0],
    ['exit 5', 5],
    ['throw', 1],
    ['reject', 1],
    ['return', 0],
  ],
  lastWords: ['destroy', 'return'],
}

/** One case of each promise. */
export const usualFailures: FailureCases = {
  waits: ['collective'],
  losses: ['throw'],
  ends: [
    ['exit 5', 5],
    ['return', 0],
  ],
  lastWords: ['destroy'],
}

/** Starts four ranks; rank 2 never joins. Resolves when the others are about to wait. */
async function startWaiting(env: NodeJS.ProcessEnv, wait: string, act = 'stay'): Promise<Job> {
  const job = await Job.start({
    size: 4,
    program: 'wait.mjs',
    env: { ...env, WAIT: wait, VICTIM: '2', VICTIM_ACT: act },
  })
  await Promise.all(job.ranks.map((rank) => rank.hear('ready')))
  return job
}

async function failuresOf(job: Job): Promise<Said[]> {
  return await Promise.all([0, 1, 3].map((rank) => job.ranks[rank]!.hear('failed')))
}

/** What ranks promise when another one is lost, leaves, or never comes. */
export function describeFailures(worlds: readonly World[], cases = allFailures): void {
  describe.each(worlds)('a rank that is killed ($name)', ({ env }) => {
    it.each(cases.waits)('makes all other ranks fail within a second: %s', async (wait) => {
      const job = await startWaiting(env, wait)
      const killed = monotonic()
      job.ranks[2]!.child.kill('SIGKILL')
      for (const { code, message, at } of await failuresOf(job)) {
        expect(code).toMatch(/^ERR_TSR_(PEER_LOST|PEER_FAILED|GROUP_FAILED)$/)
        expect(message).toContain('Rank 2 is gone')
        expect(at - killed).toBeLessThan(1000)
      }
    })
  })

  describe.each(worlds)('a rank that ends early ($name)', ({ env }) => {
    it('with exit code 0 is reported to the other ranks as having left', async () => {
      const job = await startWaiting(env, 'collective', 'return')
      job.ranks[2]!.child.kill('SIGUSR2')
      for (const { code, message } of await failuresOf(job)) {
        expect(code).toMatch(/^ERR_TSR_(PEER_LEFT|PEER_FAILED|GROUP_FAILED)$/)
        expect(message).toContain('Rank 2 has left the job')
      }
    })

    it.each(cases.losses)('by %s is reported as lost', async (act) => {
      const job = await startWaiting(env, 'collective,receive', act)
      job.ranks[2]!.child.kill('SIGUSR2')
      for (const { code, message } of await failuresOf(job)) {
        expect(code).toMatch(/^ERR_TSR_(PEER_LOST|PEER_FAILED|GROUP_FAILED)$/)
        expect(message).toContain('Rank 2 is gone')
      }
    })
  })

  describe.each(worlds)('a rank that is stopped ($name)', ({ env }) => {
    it('is named in the time-outs of the waiting ranks', async () => {
      const job = await Job.start({
        size: 3,
        program: 'wait.mjs',
        env: { ...env, WAIT: 'collective', VICTIM: '2', TIMEOUT: '1500' },
      })
      await Promise.all(job.ranks.map((rank) => rank.hear('ready')))
      job.ranks[2]!.child.kill('SIGSTOP')
      const said = await Promise.all([0, 1].map((rank) => job.ranks[rank]!.hear('failed')))
      for (const { code, message } of said) {
        expect(code).toMatch(/^ERR_TSR_(OPERATION_TIMEOUT|PEER_FAILED)$/)
        expect(message).toContain('timed out after 1500 ms')
      }
      const waiting = said.map(({ message }) => message).join('\n')
      expect(waiting).toMatch(/waiting for rank (\d, )*2/)
    })
  })

  describe.each(worlds)('a process that ends ($name)', ({ env }) => {
    it.each(cases.ends)('by %s disappears within a second', async (END, code) => {
      const job = await Job.start({ size: 2, program: 'end.mjs', env: { ...env, END } })
      for (const rank of job.ranks) {
        const { at } = await rank.hear('ending')
        const ended = await rank.end()
        expect(ended).toMatchObject({ code, signal: null })
        expect(ended.at - at).toBeLessThan(1000)
      }
    })

    it.each(cases.lastWords)('by %s delivers the messages that it has sent', async (END) => {
      // rank 1 has the inline engine, which leaves its messages lying while it is busy
      const envOf = (rank: number) => (rank === 0 || env['TSRUN_TRANSPORT'] !== 'node' ? env : {})
      const job = await Job.start({ size: 2, program: 'last-words.mjs', env: { END }, envOf })
      await job.ranks[1]!.hear('done')
      await job.succeed()
    })
  })

  describe.each(worlds)('while the ranks connect ($name)', ({ env }) => {
    /** Where a rank listens. */
    async function endpointOf(job: Job, rank: number): Promise<{ host: string; port: number }> {
      const store = await job.store()
      const value = await store.get(`world/0/endpoint/${rank}`, { timeout: 30_000 })
      return JSON.parse(new TextDecoder().decode(value)) as { host: string; port: number }
    }

    async function call(job: Job, rank: number): Promise<Socket> {
      const socket = connect(await endpointOf(job, rank))
      socket.on('error', () => undefined).resume()
      await once(socket, 'connect')
      return socket
    }

    it('unauthenticated connections to the data ports are rejected, and the job continues', async () => {
      const job = await Job.start({ size: 3, program: 'join.mjs', env }, (rank) => rank === 2)
      const noise = await call(job, 0)
      noise.write(Buffer.alloc(5_000_000, 'random bytes '))
      const half = await call(job, 1)
      half.write(clientHandshake(job.token, 'data test 0').hello.subarray(0, 7))
      const wrong = await call(job, 1)
      wrong.write(clientHandshake('00'.repeat(32), 'data test 0').hello)
      await call(job, 0)
      job.startRank(2)
      for (const rank of job.ranks) expect(await rank.hear('met')).toMatchObject({ sum: 3 })
      await job.succeed()
      for (const socket of [noise, half, wrong]) socket.destroy()
    })

    it('a flood of connections to a data port does not stop the job', async () => {
      const job = await Job.start({ size: 2, program: 'join.mjs', env }, (rank) => rank === 1)
      const crowd = await Promise.all(Array.from({ length: 300 }, () => call(job, 0)))
      job.startRank(1)
      await job.succeed()
      for (const socket of crowd) socket.destroy()
    })

    it('the missing ranks are named', async () => {
      const options = { size: 4, program: 'join.mjs', env: { ...env, TIMEOUT: '2000' } }
      const job = await Job.start(options, (rank) => rank === 1 || rank === 3)
      for (const rank of [0, 2]) {
        const said = await job.ranks[rank]!.hear('failed')
        expect(said.code).toBe('ERR_TSR_TIMEOUT')
        expect(said.message).toContain('waiting for ranks 1, 3 to join the job')
      }
    })
  })
}
