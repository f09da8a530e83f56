import { memoryStore, type Store } from '@tsrun/store'
import { exchangeEndpoints } from '../../../internals/distributed/groups.ts'

type Exchange = Parameters<typeof exchangeEndpoints>

const settings = {
  worldSize: 2,
  token: 'secret',
  environment: undefined,
  sharedMemory: 'off',
} as unknown as Exchange[0]

function exchange(
  store: Store,
  rank: number,
  digest: string,
): ReturnType<typeof exchangeEndpoints> {
  const joining = { from: undefined, generation: 0, store, timeout: 2_000, signal: undefined }
  return exchangeEndpoints(
    { ...settings, rank },
    { ...joining, incarnation: String(rank) },
    { host: '127.0.0.1', port: 1, on: 'here', protection: 'none', tuning: { source: '', digest } },
  )
}

describe('ranks that exchange endpoints', () => {
  it('all refuse to join if tunings differ, even if the fastest rank has already left', async () => {
    const shared = memoryStore()
    for (const rank of [0, 1]) await shared.set(`alive/${rank}`, '')
    const refusal = { code: 'ERR_TSR_TUNING_DIFFERS' }
    let isServed = false
    const slow: Store = {
      ...shared,
      set: shared.set.bind(shared),
      multiGet: async (keys, options) => {
        if (!isServed) await new Promise((resolve) => setTimeout(resolve, 300))
        isServed = true
        return await shared.multiGet(keys, options)
      },
      check: shared.check.bind(shared),
    }
    const fast = exchange(shared, 0, 'a').finally(async () => await shared.delete('alive/0'))
    await expect(Promise.allSettled([fast, exchange(slow, 1, 'b')])).resolves.toMatchObject([
      { status: 'rejected', reason: refusal },
      { status: 'rejected', reason: refusal },
    ])
  })

  it('report that tunings differ, even if the other rank died before it could refuse', async () => {
    const store = memoryStore()
    for (const rank of [0, 1]) await store.set(`alive/${rank}`, '')
    const other = { host: '127.0.0.1', port: 2, on: 'here', protection: 'none' }
    const tuning = { source: '', digest: 'b' }
    await store.set('endpoint/1', JSON.stringify({ ...other, tuning }))
    await expect(exchange(store, 0, 'a')).rejects.toMatchObject({ code: 'ERR_TSR_TUNING_DIFFERS' })
  })
})
