import { jest } from '@jest/globals'
import { endJobs, startAlone, startProgram } from '../distributed/support/job.ts'

jest.setTimeout(120_000)

afterEach(endJobs)

const engines = [
  { name: 'worker', env: {} },
  { name: 'worker over tcp', env: { TSRUN_TRANSPORT: 'tcp' } },
  { name: 'worker over node', env: { TSRUN_TRANSPORT: 'node' } },
  { name: 'inline', env: { TSRUN_ENGINE: 'inline' } },
  { name: 'inline over tcp', env: { TSRUN_ENGINE: 'inline', TSRUN_TRANSPORT: 'tcp' } },
]

describe.each(engines)('without tsrun, rank 0 hosts the store ($name)', ({ env }) => {
  it.each(['return', 'destroy', 'pending'])(
    'and keeps it for other ranks after leaving by %s',
    async (end) => {
      const ranks = await startAlone(3, ['store-in-rank-0.mjs', end], env)
      for (const rank of ranks.slice(1)) {
        expect(await rank.hear('left')).toMatchObject({ code: 'ERR_TSR_PEER_LEFT' })
        await rank.hear('done')
      }
      for (const rank of ranks) expect((await rank.end()).code).toBe(0)
    },
  )

  it('and exits when the other ranks have thrown', async () => {
    const ranks = await startAlone(3, ['store-in-rank-0.mjs', 'others throw'], env)
    const codes = await Promise.all(ranks.map(async (rank) => (await rank.end()).code))
    expect(codes).toEqual([0, 1, 1])
  })

  it.each([
    ['throw', 1],
    ['code', 3],
  ])('and all ranks end when rank 0 fails (%s)', async (end, code) => {
    const ranks = await startAlone(3, ['store-in-rank-0.mjs', end], env)
    const codes = await Promise.all(ranks.map(async (rank) => (await rank.end()).code))
    expect(codes).toEqual([code, 1, 1])
  })
})

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
