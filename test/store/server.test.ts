import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createConnection, createServer, type Socket } from 'node:net'
import { networkInterfaces } from 'node:os'
import { clientHandshake } from '@tsrun/core'
import { connectStore, startStoreServer, type Store, type StoreServer } from '@tsrun/store'
import fc from 'fast-check'
import { ended, frame, openProven, openSocket, until } from './raw-client.ts'
import { text, token } from './stores.ts'

describe('the store server', () => {
  let server: StoreServer
  let store: Store
  const refusals: string[] = []

  beforeEach(async () => {
    refusals.length = 0
    server = await startStoreServer({
      token,
      maxUnauthenticated: 8,
      onRefused: (peer, reason) => refusals.push(`${peer} ${reason}`),
    })
    store = await connectStore({ ...server.endpoint, token, timeout: 10_000 })
  })
  afterEach(async () => {
    await server.close()
  })

  /** What every test below must leave intact. */
  async function expectToServe(): Promise<void> {
    await store.set('still', 'there')
    expect(text(await server.local.get('still'))).toBe('there')
    await until(() => server.inspect().unauthenticated === 0 && server.inspect().connections === 1)
  }

  it('needs a token at every address that other hosts can reach', async () => {
    const own = Object.values(networkInterfaces()).flatMap((of = []) => of)
    const reachable = own.filter(({ internal }) => !internal).map(({ address }) => address)
    const hosts = reachable.length === 0 ? [] : ['0.0.0.0', '::', ...reachable]
    expect.assertions(hosts.length)
    for (const host of hosts) {
      await expect(startStoreServer({ host, token: '' })).rejects.toMatchObject({
        code: 'ERR_TSR_ARGUMENT',
        message: expect.stringContaining(`because other hosts can reach ${host}`) as string,
      })
    }
  })

  it.each(['127.0.0.1', 'localhost'])('needs no token at %s', async (host) => {
    await (await startStoreServer({ host, token: '' })).close()
  })

  it('reports that the port is taken, with advice', async () => {
    const { host, port } = server.endpoint
    await expect(startStoreServer({ host, port, token })).rejects.toMatchObject({
      code: 'ERR_TSR_STORE_PORT_TAKEN',
      message: expect.stringContaining(`${host}:${String(port)}`) as string,
      advice: expect.stringContaining('port 0') as string,
    })
    await expectToServe()
  })

  it('reports an IPv6 endpoint in the usual notation', async () => {
    const { port } = server.endpoint
    const attempt = startStoreServer({ host: '2001:db8::1', port, token })
    await expect(attempt).rejects.toThrow(`[2001:db8::1]:${String(port)}`)
  })

  it('reports why it cannot listen at an address', async () => {
    await expect(startStoreServer({ host: '192.0.2.1', token })).rejects.toMatchObject({
      code: 'ERR_TSR_STORE_LISTEN',
      message: expect.stringContaining('EADDRNOTAVAIL') as string,
    })
    await expect(startStoreServer({ port: 65536, token })).rejects.toMatchObject({
      code: 'ERR_TSR_ARGUMENT',
    })
  })

  it('frees its port when it closes, and may be closed twice', async () => {
    const { host, port } = server.endpoint
    await server.close()
    await server.close()
    server = await startStoreServer({ host, port, token })
    store = await connectStore({ host, port, token })
    await expectToServe()
  })

  it('drops a connection that sends random bytes, and continues', async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ minLength: 40, maxLength: 5000 }), async (bytes) => {
        const socket = await openSocket(server.endpoint)
        socket.end(bytes)
        await ended(socket)
      }),
      { numRuns: 50 },
    )
    await expectToServe()
    expect(refusals).toHaveLength(50)
  })

  it('drops a connection whose proof is for another token', async () => {
    const socket = await openSocket(server.endpoint)
    socket.write(clientHandshake('another token', 'store').hello)
    await once(socket, 'data')
    socket.write(randomBytes(32))
    await ended(socket)
    await expectToServe()
    expect(refusals).toEqual([expect.stringContaining('it does not know the token')])
  })

  it('drops a connection that replays the proof of another connection', async () => {
    const handshake = clientHandshake(token, 'store')
    const record = async (socket: Socket): Promise<Uint8Array> => {
      socket.write(handshake.hello)
      const [hello] = (await once(socket, 'data')) as [Buffer]
      const answer = handshake.answer(hello)
      if (!('proof' in answer)) throw new Error(answer.refused)
      return answer.proof
    }
    const first = await openSocket(server.endpoint)
    const proof = await record(first)
    const second = await openSocket(server.endpoint)
    await record(second)
    second.write(proof)
    await ended(second)
    first.destroy()
    await expectToServe()
  })

  it.each([0, 1, 40])('drops a connection that stays silent after %i bytes', async (bytes) => {
    const patient = await startStoreServer({ token, handshakeTimeout: 30 })
    try {
      const socket = await openSocket(patient.endpoint)
      socket.write(clientHandshake(token, 'store').hello.subarray(0, bytes))
      await ended(socket)
      expect(patient.inspect().unauthenticated).toBe(0)
    } finally {
      await patient.close()
    }
  })

  it('lets an authenticated client be idle for longer than the handshake may take', async () => {
    const patient = await startStoreServer({ token, handshakeTimeout: 30 })
    try {
      const idle = await connectStore({ ...patient.endpoint, token })
      const silent = await openSocket(patient.endpoint)
      await ended(silent)
      await idle.set('k', '')
    } finally {
      await patient.close()
    }
  })

  it('admits a client despite many silent connections', async () => {
    const crowd = await Promise.all(
      Array.from({ length: 20 }, async () => await openSocket(server.endpoint)),
    )
    const late = await connectStore({ ...server.endpoint, token })
    await late.set('k', 'v')
    expect(server.inspect().unauthenticated).toBeLessThanOrEqual(8)
    expect(refusals.length).toBeGreaterThanOrEqual(12)
    for (const socket of crowd) socket.destroy()
    await late.close()
    await expectToServe()
  })

  it.each([
    ['its own address', '127.0.0.1', 40],
    ['its own address, even after half a hello', '127.0.0.1', 20],
    ['another address', '127.0.0.2', 40],
  ])(
    'admits a slow client during a flood of silent connections from %s',
    async (_, localAddress, sent) => {
      const slow = await openSocket(server.endpoint)
      const handshake = clientHandshake(token, 'store')
      const flood: Socket[] = []
      const floodOf = async (count: number): Promise<void> => {
        const dropped = refusals.length
        while (flood.length < count) {
          const socket = createConnection({ ...server.endpoint, localAddress })
          flood.push(socket.on('error', () => undefined))
        }
        await until(() => refusals.length > dropped + count / 2)
      }
      if (localAddress !== '127.0.0.1') await floodOf(60)
      slow.write(handshake.hello.subarray(0, sent))
      const answered = once(slow, 'data')
      // The server has read the bytes before it answers requests that came later.
      for (const value of ['first', 'second']) await store.set('still', value)
      if (sent === 40) await answered
      await floodOf(60 + flood.length)
      slow.write(handshake.hello.subarray(sent))
      const [hello] = (await answered) as [Buffer]
      const answer = handshake.answer(hello)
      slow.write('proof' in answer ? answer.proof : '')
      const [proof] = (await once(slow, 'data')) as [Buffer]
      expect(handshake.trusts(proof)).toBe(true)
      for (const socket of [slow, ...flood]) socket.destroy()
      await expectToServe()
    },
  )

  it.each([
    ['a frame of 4 GiB', Buffer.from('ffffffff', 'hex')],
    ['a frame one byte too long', Buffer.from('01000001', 'hex')],
    ['an empty frame', Buffer.alloc(4)],
    [
      'a frame that is no message',
      Buffer.concat([Buffer.from('04000000', 'hex'), Buffer.from('!!!!')]),
    ],
    ['a truncated message', Buffer.from('02000000dfff', 'hex')],
    ['an unknown operation', frame({ id: 1, op: 'format' })],
    ['a message without id', frame({ op: 'get', key: 'k' })],
    ['a key that is no text', frame({ id: 1, op: 'get', key: 7 })],
    ['a value that is no bytes', frame({ id: 1, op: 'set', key: 'k', value: 'text' })],
    ['a surplus field', frame({ id: 1, op: 'get', key: 'k', more: 1 })],
    ['an inherited name as operation', frame({ id: 1, op: 'toString' })],
    [
      'a negative time to live',
      frame({ id: 1, op: 'set', key: 'k', value: Buffer.alloc(0), timeToLive: -1 }),
    ],
  ])('drops a client that sends %s, and continues', async (_, bytes) => {
    const socket = await openProven(server.endpoint, token)
    socket.write(bytes)
    await ended(socket)
    await expectToServe()
  })

  it('enforces its limits even if the client does not check them', async () => {
    const socket = await openProven(server.endpoint, token)
    socket.write(frame({ id: 1, op: 'get', key: 'x'.repeat(8193) }))
    const [answer] = (await once(socket, 'data')) as [Buffer]
    expect(answer.toString('latin1')).toContain('ERR_TSR_STORE_LIMIT')
    socket.destroy()
    await expectToServe()
  })

  it('accepts frames that arrive byte by byte', async () => {
    const socket = await openProven(server.endpoint, token)
    for (const byte of frame({ id: 1, op: 'set', key: 'slow', value: Buffer.from('v') })) {
      socket.write(Uint8Array.of(byte))
      await new Promise((resolve) => setImmediate(resolve))
    }
    expect(text(await store.get('slow'))).toBe('v')
    socket.destroy()
    await expectToServe()
  })

  it('drops the waits and watches of a client that has disconnected', async () => {
    const leaver = await connectStore({ ...server.endpoint, token })
    await leaver.watch('k', () => undefined)
    const calls = [leaver.get('k'), leaver.wait(['k', 'l']), leaver.queuePop('q')].map((call) =>
      expect(call).rejects.toMatchObject({ code: 'ERR_TSR_STORE_CLOSED' }),
    )
    await until(() => server.inspect().waiting === 3)
    expect(server.inspect().watches).toBe(1)
    await leaver.close()
    await Promise.all(calls)
    await until(() => server.inspect().connections === 1)
    expect(server.inspect()).toMatchObject({ waiting: 0, watches: 0 })
    await store.queuePush('q', 'not lost')
    expect(text(await store.queuePop('q'))).toBe('not lost')
    await expectToServe()
  })

  it('returns a popped value to its queue if the client disconnects before it confirms', async () => {
    for (const value of ['a', 'b', 'c']) await store.queuePush('q', value)
    const socket = await openProven(server.endpoint, token)
    socket.write(frame({ id: 1, op: 'queuePop', key: 'q' }))
    await once(socket, 'data')
    socket.write(frame({ id: 1, op: 'received' }))
    for (const id of [2, 3]) {
      socket.write(frame({ id, op: 'queuePop', key: 'q' }))
      await once(socket, 'data')
    }
    expect(await store.queueLength('q')).toBe(0)
    socket.destroy()
    const values = [await store.queuePop('q'), await store.queuePop('q')]
    expect(values.map(text)).toEqual(['b', 'c'])
    await expectToServe()
  })

  it('refuses a second request with the same number', async () => {
    const socket = await openProven(server.endpoint, token)
    socket.write(frame({ id: 1, op: 'get', key: 'never' }))
    socket.write(frame({ id: 1, op: 'get', key: 'other' }))
    const [answer] = (await once(socket, 'data')) as [Buffer]
    expect(answer.toString('latin1')).toContain('ERR_TSR_MESSAGE_INVALID')
    socket.destroy()
    await expectToServe()
  })

  it('limits the memory of the keys that a client waits for', async () => {
    const keys = Array.from({ length: 330_000 }, (_, i) => `k${i}`)
    await expect(store.wait(keys)).rejects.toMatchObject({
      code: 'ERR_TSR_STORE_LIMIT',
      facts: { what: 'What the client waits for' },
    })
    await expectToServe()
  })

  it('refuses a frame of millions of empty containers without allocating them', async () => {
    const socket = await openProven(server.endpoint, token)
    const payload = Buffer.alloc(8 * 1024 * 1024, 0x80)
    const header = Buffer.alloc(4)
    header.writeUInt32LE(payload.length)
    const before = process.memoryUsage().heapUsed
    socket.write(Buffer.concat([header, payload]))
    await ended(socket)
    expect(process.memoryUsage().heapUsed - before).toBeLessThan(64 * 1024 * 1024)
    await expectToServe()
  })

  it('deletes keys that were set while connected when their owner leaves, and notifies watchers', async () => {
    const leaving = await connectStore({ ...server.endpoint, token })
    const seen: (string | undefined)[] = []
    for (const key of ['gone', 'taken over']) {
      await leaving.set(key, 'by the client', { whileConnected: true })
    }
    await leaving.set('kept', 'v', { whileConnected: true })
    await leaving.set('kept', 'v')
    await store.set('taken over', 'by another', { whileConnected: true })
    await store.watch('gone', ({ value }) => seen.push(text(value)))
    await leaving.close()
    await until(() => seen.length > 0)
    expect(seen).toEqual([undefined])
    expect(await store.list()).toEqual(['kept', 'taken over'])
  })

  it('drops waits that have timed out', async () => {
    await expect(store.wait(['a', 'b'], { timeout: 1 })).rejects.toThrow(/missing: a, b/)
    await expect(store.queuePop('q', { timeout: 1 })).rejects.toThrow(/missing: q/)
    expect(server.inspect().waiting).toBe(0)
  })

  it('stops reading from a client that does not read its answers', async () => {
    const value = new Uint8Array(8 * 1024 * 1024)
    await store.set('big', value)
    const socket = await openProven(server.endpoint, token)
    socket.pause()
    const many = 16
    for (let id = 1; id <= many; id++) socket.write(frame({ id, op: 'get', key: 'big' }))
    socket.write(frame({ id: many + 1, op: 'set', key: 'last', value: Buffer.from('read') }))
    await store.set('unrelated', 'x')
    expect(await store.check(['last'])).toBe(false)
    let received = 0
    socket.on('data', (chunk) => (received += chunk.length)).resume()
    await store.get('last', { timeout: 30_000 })
    await until(() => received > many * value.length)
    socket.destroy()
    await expectToServe()
  })

  it('closes even if a client neither reads nor disconnects', async () => {
    await store.set('big', new Uint8Array(8 * 1024 * 1024))
    const socket = await openProven(server.endpoint, token)
    socket.pause()
    for (let id = 1; id <= 8; id++) socket.write(frame({ id, op: 'get', key: 'big' }))
    await once(socket, 'readable')
    await server.close()
    expect(server.inspect()).toMatchObject({ connections: 0, keys: 0 })
    socket.destroy()
  })

  it('is not disturbed by a port scan', async () => {
    for (let i = 0; i < 20; i++) (await openSocket(server.endpoint)).resetAndDestroy()
    await expectToServe()
  })

  it('refuses an impossible port', async () => {
    const stranger = createServer().listen(0, '127.0.0.1')
    await once(stranger, 'listening')
    const { port } = stranger.address() as { port: number }
    await expect(startStoreServer({ port, token })).rejects.toMatchObject({
      code: 'ERR_TSR_STORE_PORT_TAKEN',
    })
    stranger.close()
  })
})
