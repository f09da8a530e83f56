import { jest } from '@jest/globals'
import { connectStore, startStoreServer } from '@tsrun/store'
import { until } from './raw-client.ts'
import { accept, listen } from './raw-server.ts'
import { text, token } from './stores.ts'

describe('a connection to the store', () => {
  it('carries 200 blocked calls and the call that releases them', async () => {
    const server = await startStoreServer({ token })
    const store = await connectStore({ ...server.endpoint, token })
    const keys = Array.from({ length: 200 }, (_, i) => `k${String(i)}`)
    const blocked = keys.map(async (key) => text(await store.get(key)))
    await until(() => server.inspect().waiting === 200)
    expect(await store.add('others go on', 1)).toBe(1)
    for (const key of keys.toReversed()) await store.set(key, `value of ${key}`)
    expect(await Promise.all(blocked)).toEqual(keys.map((key) => `value of ${key}`))
    const same = Array.from({ length: 200 }, async () => text(await store.get('all')))
    await until(() => server.inspect().waiting === 200)
    await store.set('all', 'at once')
    expect(new Set(await Promise.all(same))).toEqual(new Set(['at once']))
    await server.close()
  })

  it('rejects every pending call when the server closes', async () => {
    const server = await startStoreServer({ token })
    const store = await connectStore({ ...server.endpoint, token })
    const closed = { code: 'ERR_TSR_STORE_CLOSED' }
    const pending = [
      store.get('k'),
      store.wait(['k', 'l'], { timeout: Infinity }),
      store.queuePop('q'),
      server.local.get('k'),
    ].map((call) => expect(call).rejects.toMatchObject(closed))
    await until(() => server.inspect().waiting === 4)
    await server.close()
    await Promise.all(pending)
    await expect(store.set('k', '')).rejects.toMatchObject(closed)
    await expect(server.local.set('k', '')).rejects.toMatchObject(closed)
    await store.close()
  })

  it('refuses a request larger than a frame, and continues', async () => {
    const server = await startStoreServer({ token })
    const store = await connectStore({ ...server.endpoint, token })
    const keys = Array.from({ length: 2100 }, (_, i) => String(i).padEnd(8192, 'x'))
    await expect(store.check(keys)).rejects.toMatchObject({
      code: 'ERR_TSR_STORE_LIMIT',
      message: expect.stringContaining('The request') as string,
    })
    for (const key of keys) await server.local.set(key, '')
    await expect(store.list()).rejects.toMatchObject({
      code: 'ERR_TSR_STORE_LIMIT',
      message: expect.stringContaining('The answer') as string,
    })
    expect(await store.check(['k'])).toBe(false)
    await server.close()
  })

  it('closes if the server breaks the protocol', async () => {
    const { server, port } = await listen((socket) => {
      void accept(socket).then(() => socket.write(Buffer.from('ffffffff', 'hex')))
    })
    const store = await connectStore({ host: '127.0.0.1', port, token })
    await expect(store.get('k')).rejects.toMatchObject({
      code: 'ERR_TSR_STORE_CLOSED',
      message: expect.stringContaining('4294967295 bytes') as string,
    })
    server.close()
  })

  describe('whose server has stopped answering', () => {
    beforeEach(() => {
      jest.useFakeTimers({
        doNotFake: ['setImmediate', 'nextTick', 'queueMicrotask', 'performance'],
      })
    })
    afterEach(() => {
      jest.useRealTimers()
    })

    it('ends every call at its time-out', async () => {
      const requests: Buffer[] = []
      const { server, port } = await listen((socket) => {
        socket.on('data', (data) => requests.push(data))
        void accept(socket)
      })
      const store = await connectStore({ host: '127.0.0.1', port, token, timeout: 2000 })
      const silent = { code: 'ERR_TSR_STORE_UNRESPONSIVE' }
      const ends = [store.set('k', ''), store.get('k'), store.watch('k', () => undefined)].map(
        (call) => expect(call).rejects.toMatchObject(silent),
      )
      await until(() => Buffer.concat(requests).includes('watch'))
      jest.advanceTimersByTime(2000)
      await until(() => Buffer.concat(requests).includes('cancel'))
      jest.advanceTimersByTime(5000)
      await Promise.all(ends)
      await store.close()
      server.close()
    })
  })
})
