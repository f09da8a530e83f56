import { endJobs, startAlone, startProgram } from '../distributed/support/job.ts'
import { describeStoreInRank0, engines } from './support/without-launcher.ts'

afterEach(endJobs)

describeStoreInRank0(engines.slice(0, 1), {
  leaves: ['return', 'destroy'],
  failures: [['code', 3]],
})
describeStoreInRank0(engines.slice(-1), { leaves: ['pending'], failures: [['throw', 1]] })

it('process.exit() of rank 0 after destroyProcessGroup() keeps the store until the others have left', async () => {
  const ranks = await startAlone(3, ['store-in-rank-0.mjs', 'exit'])
  for (const rank of ranks) expect((await rank.end()).code).toBe(0)
})

it('ranks without a launcher join again after all have left', async () => {
  const ranks = await startAlone(2, ['join-again.mjs'])
  for (const rank of ranks) {
    const met = [0, 1, 2].map((turn) => expect.objectContaining({ sum: 1 + 2 * turn }) as unknown)
    expect(await rank.hear('met')).toMatchObject({ met })
    expect((await rank.end()).code).toBe(0)
  }
})

it('rank 0 frees the port of the store if it cannot join', async () => {
  const port = 20_000 + (process.pid % 10_000)
  const place = { RANK: '0', WORLD_SIZE: '2', MASTER_ADDR: '127.0.0.1', MASTER_PORT: String(port) }
  const rank = startProgram('join.mjs', { ...place, TIMEOUT: '500' })
  expect(await rank.hear('failed')).toMatchObject({ code: 'ERR_TSR_TIMEOUT' })
  expect((await rank.end()).code).toBe(0)
})
