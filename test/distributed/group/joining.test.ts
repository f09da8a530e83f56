import { jest } from '@jest/globals'
import { isAvailable } from '@tsrun/native'
import { memoryStore } from '@tsrun/store'
import { initProcessGroup, type InitOptions } from '@tsrun/distributed'
import { errorOf } from '../support/outcome.ts'

jest.setTimeout(60_000)

const ways: InitOptions[] = [{ engine: 'worker', transport: 'node' }]
if (isAvailable().available) {
  ways.push({ engine: 'worker', transport: 'tcp' }, { engine: 'inline', transport: 'tcp' })
}

describe.each(ways)('initProcessGroup (%j)', (way) => {
  const arena = 4 * 1024 * 1024

  it('gives up when its signal is aborted while others are missing', async () => {
    const store = memoryStore()
    const controller = new AbortController()
    const options = { ...way, arena, store, rank: 0, worldSize: 2 }
    const joining = errorOf(() => initProcessGroup({ ...options, signal: controller.signal }))
    await store.get('world/0/endpoint/0')
    controller.abort()
    expect(await joining).toMatchObject({ code: 'ERR_TSR_ABORTED' })
    await store.close()
  })

  it('gives up when its signal is aborted while a rank does not answer', async () => {
    const store = memoryStore()
    const controller = new AbortController()
    const options = { ...way, arena, store, rank: 0, worldSize: 2 }
    const joining = errorOf(() => initProcessGroup({ ...options, signal: controller.signal }))
    // rank 1 says that it is there, and never calls
    const own = await store.get('world/0/endpoint/0')
    await store.set('world/0/endpoint/1', own)
    await store.set('world/0/sharing/1', '[]')
    await store.set('world/0/alive/1', '')
    await store.get('world/0/joined/0')
    controller.abort()
    expect(await joining).toMatchObject({ code: 'ERR_TSR_ABORTED' })
    await store.close()
  })

  it('names who is missing when its time is up', async () => {
    const store = memoryStore()
    const options = { ...way, arena, store, rank: 1, worldSize: 3, timeout: 100 }
    const error = await errorOf(() => initProcessGroup(options))
    expect(error).toMatchObject({ code: 'ERR_TSR_TIMEOUT' })
    expect(error?.message).toContain('waiting for ranks 0, 2 to join the job')
    await store.close()
  })
})
