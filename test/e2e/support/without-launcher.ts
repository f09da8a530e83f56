import { startAlone } from '../../distributed/support/job.ts'

interface Engine {
  readonly name: string
  readonly env: Readonly<Record<string, string>>
}

export const engines: readonly Engine[] = [
  { name: 'worker', env: {} },
  { name: 'worker over tcp', env: { TSRUN_TRANSPORT: 'tcp' } },
  { name: 'worker over node', env: { TSRUN_TRANSPORT: 'node' } },
  { name: 'inline', env: { TSRUN_ENGINE: 'inline' } },
  { name: 'inline over tcp', env: { TSRUN_ENGINE: 'inline', TSRUN_TRANSPORT: 'tcp' } },
]

/** How rank 0 leaves or fails; `code` is the exit code of a failure. */
export interface EndsOfRank0 {
  readonly leaves: readonly string[]
  readonly failures: readonly (readonly [end: string, code: number])[]
}

const allEnds: EndsOfRank0 = {
  leaves: ['return', 'destroy', 'pending'],
  failures: [
    ['throw', 1],
    ['code', 3],
  ],
}

/** What rank 0 promises as the host of the store. */
export function describeStoreInRank0(engines: readonly Engine[], ends = allEnds): void {
  describe.each(engines)('without tsrun, rank 0 hosts the store ($name)', ({ env }) => {
    it.each(ends.leaves)('and keeps it for other ranks after leaving by %s', async (end) => {
      const ranks = await startAlone(3, ['store-in-rank-0.mjs', end], env)
      for (const rank of ranks.slice(1)) {
        expect(await rank.hear('left')).toMatchObject({ code: 'ERR_TSR_PEER_LEFT' })
        await rank.hear('done')
      }
      for (const rank of ranks) expect((await rank.end()).code).toBe(0)
    })

    it('and exits when the other ranks have thrown', async () => {
      const ranks = await startAlone(3, ['store-in-rank-0.mjs', 'others throw'], env)
      const codes = await Promise.all(ranks.map(async (rank) => (await rank.end()).code))
      expect(codes).toEqual([0, 1, 1])
    })

    it.each(ends.failures)('and all ranks end when rank 0 fails (%s)', async (end, code) => {
      const ranks = await startAlone(3, ['store-in-rank-0.mjs', end], env)
      const codes = await Promise.all(ranks.map(async (rank) => (await rank.end()).code))
      expect(codes).toEqual([code, 1, 1])
    })
  })
}
