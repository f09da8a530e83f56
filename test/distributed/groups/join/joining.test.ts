import { once } from 'node:events'
import { readdirSync, readlinkSync } from 'node:fs'
import { createServer, type AddressInfo, type Socket } from 'node:net'
import { isAvailable } from '@tsrun/native'
import { memoryStore } from '@tsrun/store'
import { initProcessGroup, type InitOptions } from '@tsrun/distributed'
import { errorOf } from '../../support/outcome.ts'

const ways: InitOptions[] = [{ engine: 'worker', transport: 'node' }]
if (isAvailable().available) {
  ways.push({ engine: 'worker', transport: 'tcp' }, { engine: 'inline', transport: 'tcp' })
}

const nothingShared = JSON.stringify({ lacks: [0, 1] })

/** The sockets that this process has open, its own and those of libc. */
function openSockets(): string[] {
  if (process.platform !== 'linux') return []
  return readdirSync('/proc/self/fd').flatMap((fd) => {
    try {
      const target = readlinkSync(`/proc/self/fd/${fd}`)
      return target.startsWith('socket:') ? [target] : []
    } catch {
      // The address of the folder itself.
      return []
    }
  })
}

/** Sockets of the tests before may end meanwhile. */
function openedSince(before: readonly string[]): string[] {
  return openSockets().filter((socket) => !before.includes(socket))
}

describe.each(ways)('initProcessGroup (%j)', (way) => {
  const arena = 4 * 1024 * 1024

  it('stops when its signal is aborted while ranks are missing', async () => {
    const before = openSockets()
    const store = memoryStore()
    const controller = new AbortController()
    const options = { ...way, arena, store, rank: 0, worldSize: 2 }
    const joining = errorOf(() => initProcessGroup({ ...options, signal: controller.signal }))
    await store.get('world/0/endpoint/0')
    controller.abort()
    expect(await joining).toMatchObject({ code: 'ERR_TSR_ABORTED' })
    expect(openedSince(before)).toEqual([])
    await store.close()
  })

  it('stops when its signal is aborted while a rank does not answer', async () => {
    const before = openSockets()
    const store = memoryStore()
    const controller = new AbortController()
    const options = { ...way, arena, store, rank: 0, worldSize: 2 }
    const joining = errorOf(() => initProcessGroup({ ...options, signal: controller.signal }))
    // rank 1 says that it is there, and never calls
    const own = await store.get('world/0/endpoint/0')
    await store.set('world/0/endpoint/1', own)
    await store.set('world/0/sharing/1', nothingShared)
    await store.set('world/0/alive/1', '')
    await store.get('world/0/joined/0')
    controller.abort()
    expect(await joining).toMatchObject({ code: 'ERR_TSR_ABORTED' })
    expect(openedSince(before)).toEqual([])
    await store.close()
  })

  it('stops when its signal is aborted while a connected rank is silent', async () => {
    const before = openSockets()
    const silent = createServer({ pauseOnConnect: true }).listen(0, '127.0.0.1')
    await once(silent, 'listening')
    const store = memoryStore()
    const controller = new AbortController()
    const options = { ...way, arena, store, rank: 1, worldSize: 2 }
    const joining = errorOf(() => initProcessGroup({ ...options, signal: controller.signal }))
    const { port } = silent.address() as AddressInfo
    const own = JSON.parse(Buffer.from(await store.get('world/0/endpoint/1')).toString()) as object
    await store.set('world/0/endpoint/0', JSON.stringify({ ...own, host: '127.0.0.1', port }))
    await store.set('world/0/sharing/0', nothingShared)
    const called = once(silent, 'connection') as Promise<[Socket]>
    await store.set('world/0/alive/0', '')
    const [socket] = await called
    controller.abort()
    expect(await joining).toMatchObject({ code: 'ERR_TSR_ABORTED' })
    socket.destroy()
    await once(silent.close(), 'close')
    expect(openedSince(before)).toEqual([])
    await store.close()
  })

  it('fails at once if another rank requires shared memory that is unavailable', async () => {
    const store = memoryStore()
    const options = { ...way, arena, store, rank: 0, worldSize: 2 }
    const joining = errorOf(() => initProcessGroup(options))
    const own = JSON.parse(Buffer.from(await store.get('world/0/endpoint/0')).toString()) as object
    await store.set('world/0/endpoint/1', JSON.stringify({ ...own, refusal: 'rank 1 has none' }))
    await store.set('world/0/alive/1', '')
    await store.set('world/0/refused/1', '')
    expect(await joining).toMatchObject({
      code: 'ERR_TSR_TRANSPORT_UNAVAILABLE',
      facts: { transport: 'shared-memory', reason: 'rank 1 has none' },
    })
    await store.close()
  })

  it('names the missing ranks at its time-out', async () => {
    const store = memoryStore()
    const options = { ...way, arena, store, rank: 1, worldSize: 3, timeout: 100 }
    const error = await errorOf(() => initProcessGroup(options))
    expect(error).toMatchObject({ code: 'ERR_TSR_TIMEOUT' })
    expect(error?.message).toContain('waiting for ranks 0, 2 to join the job')
    await store.close()
  })
})
