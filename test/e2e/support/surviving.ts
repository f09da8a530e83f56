import { Job } from '../../distributed/support/job.ts'
import type { World } from '../../distributed/support/worlds.ts'

export const arena = { TSRUN_ARENA: '32MiB' }

/** All these ranks work together, and alone. */
async function work(job: Job, ranks: readonly number[]): Promise<void> {
  const sum = ranks.reduce((all, rank) => all + rank, 0)
  for (const rank of ranks) {
    expect(await job.ranks[rank]!.hear(`left ${ranks.join()}`)).toMatchObject({ sum })
  }
}

/** Asks one to end, which all that work with it do. */
async function finish(job: Job, ranks: readonly number[]): Promise<void> {
  job.ranks[ranks[0]!]!.child.kill('SIGUSR2')
  for (const rank of ranks) {
    const { code } = await job.ranks[rank]!.end()
    if (code !== 0) throw new Error(`rank ${rank}:\n${job.ranks[rank]!.output}`)
  }
}

/** How the remaining ranks continue after a loss. */
export function describeSurviving(worlds: readonly World[]): void {
  describe.each(worlds)('shrink ($name)', ({ env: world }) => {
    const env = { ...world, ...arena }

    it('continues after ranks are killed one by one and two at once', async () => {
      const job = await Job.start({ size: 5, program: 'shrink.mjs', env })
      await work(job, [0, 1, 2, 3, 4])
      job.ranks[2]!.child.kill('SIGKILL')
      await work(job, [0, 1, 3, 4])
      job.ranks[0]!.child.kill('SIGKILL')
      job.ranks[4]!.child.kill('SIGKILL')
      await work(job, [1, 3])
      await finish(job, [1, 3])
    })

    it('tells a late rank that it is excluded', async () => {
      const late = { ...env, LATE: '1', TIMEOUT: '1000' }
      const job = await Job.start({ size: 4, program: 'shrink.mjs', env: late })
      await work(job, [0, 1, 2, 3])
      job.ranks[3]!.child.kill('SIGKILL')
      await work(job, [0, 2])
      job.ranks[1]!.child.kill('SIGUSR1')
      const refused = await job.ranks[1]!.hear('refused')
      expect(refused).toMatchObject({ code: 'ERR_TSR_EXCLUDED' })
      expect(refused.message).toContain(
        'the remaining ranks (0, 2) lost the connection to it, or it called shrink() too late',
      )
      await finish(job, [0, 2])
    })
  })

  describe.each(worlds)('reconfigure ($name)', ({ env: world }) => {
    const env = { ...world, ...arena }

    it('admits the restarted process of a lost rank, repeatedly', async () => {
      const job = await Job.start({ size: 3, program: 'reconfigure.mjs', env })
      const open: number[] = []
      for (const [generation, lost] of [undefined, 1, 0, 1].entries()) {
        if (lost !== undefined) {
          job.ranks[lost]!.child.kill('SIGKILL')
          job.startRank(lost)
        }
        for (const rank of job.ranks) {
          const said = await rank.hear(`generation ${generation}`)
          expect(said).toMatchObject({ sum: 3 })
          if (rank === job.ranks[2]) open.push(said['descriptors'] as number)
        }
      }
      // every generation lets go of its sockets and mappings
      expect(open.at(-1)).toBeLessThanOrEqual(open[0]! + 2)
      await finish(job, [0, 1, 2])
    })
  })
}

/** How the remaining ranks continue if another rank is lost in the meantime. */
export function describeSurvivingTwice(worlds: readonly World[]): void {
  describe.each(worlds)('after two losses ($name)', ({ env: world }) => {
    const env = { ...world, ...arena }

    it('shrink continues without a rank that is killed during the shrink', async () => {
      const job = await Job.start({ size: 4, program: 'shrink.mjs', env: { ...env, DIES: '1' } })
      await work(job, [0, 1, 2, 3])
      job.ranks[3]!.child.kill('SIGKILL')
      await work(job, [0, 2])
      await finish(job, [0, 2])
    })

    it('reconfigure rebuilds the world without a rank that is lost in the meantime', async () => {
      const job = await Job.start({ size: 3, program: 'reconfigure.mjs', env })
      for (const rank of job.ranks) await rank.hear('generation 0')
      job.ranks[1]!.child.kill('SIGKILL')
      await Promise.all([0, 2].map((rank) => job.ranks[rank]!.hear('failed')))
      const store = await job.store()
      // rank 0 waits in the new world for rank 1
      await store.wait(['world/0/generation-1/endpoint/0'], { timeout: 30_000 })
      job.ranks[0]!.child.kill('SIGKILL')
      for (const rank of [0, 1]) job.startRank(rank)
      for (const rank of job.ranks)
        expect(await rank.hear('generation 1')).toMatchObject({ sum: 3 })
      await finish(job, [0, 1, 2])
    })
  })
}
