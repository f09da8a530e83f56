import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { createServer, type Server, type Socket } from 'node:net'
import { fileURLToPath } from 'node:url'
import { jest } from '@jest/globals'
import { serverHandshake } from '@tsrun/core'
import { connectStore, startStoreServer, type StoreProgress, type StoreServer } from '@tsrun/store'
import { ended, until } from './raw-client.ts'
import { text, token } from './stores.ts'

describe('connecting to the store', () => {
  it('tries again until the server is there, and tells of it', async () => {
    // An address of its own: nobody else can take the port between the attempts.
    const endpoint = { host: '127.83.11.1', port: 29511 }
    const progress: StoreProgress[] = []
    let server: Promise<StoreServer> | undefined
    const store = await connectStore({
      ...endpoint,
      token,
      timeout: 20_000,
      onProgress: (step) => {
        progress.push(step)
        server ??= startStoreServer({ ...endpoint, token })
      },
    })
    await store.set('k', 'v')
    expect(progress[0]).toMatchObject({
      endpoint: '127.83.11.1:29511',
      attempt: 1,
      reason: expect.stringContaining('ECONNREFUSED') as string,
    })
    await store.close()
    await (await server!).close()
  })

  it.each([
    ['nobody listens', '127.83.11.2', /127\.83\.11\.2:29511: .*ECONNREFUSED/],
    ['the name is unknown', `${'x'.repeat(64)}.invalid`, /invalid:29511: .*(ENOTFOUND|EAI_AGAIN)/],
  ])('says so when %s', async (_, host, message) => {
    const attempt = connectStore({ host, port: 29511, token, timeout: 100 })
    await expect(attempt).rejects.toMatchObject({
      code: 'ERR_TSR_STORE_UNREACHABLE',
      message: expect.stringMatching(message) as string,
    })
  })

  it('is refused at once with another token', async () => {
    const server = await startStoreServer({ token })
    const attempt = connectStore({ ...server.endpoint, token: 'another', timeout: 60_000 })
    await expect(attempt).rejects.toMatchObject({ code: 'ERR_TSR_STORE_AUTHENTICATION' })
    const trusted = await connectStore({ ...server.endpoint, token })
    await trusted.set('k', '')
    await server.close()
  })

  it('ends at an abort, before and while it tries', async () => {
    const endpoint = { host: '127.83.11.3', port: 29511, token }
    const gone = { code: 'ERR_TSR_ABORTED' }
    await expect(connectStore({ ...endpoint, signal: AbortSignal.abort() })).rejects.toMatchObject(
      gone,
    )
    const abort = new AbortController()
    const attempt = connectStore({
      ...endpoint,
      signal: abort.signal,
      onProgress: () => {
        abort.abort()
      },
    })
    await expect(attempt).rejects.toMatchObject(gone)
  })

  it.each([
    [
      'another service',
      () => Buffer.alloc(72, 'HTTP/1.1 400 Bad Request\r\n'),
      /no store of tsrun/,
    ],
    ['another version', otherVersion, /another version of tsrun/],
  ])('recognizes %s', async (_, answer, message) => {
    const { server, port } = await listen((socket) => {
      socket.once('data', (hello) => socket.write(answer(hello)))
    })
    const attempt = connectStore({ host: '127.0.0.1', port, token, timeout: 60_000 })
    await expect(attempt).rejects.toMatchObject({
      code: 'ERR_TSR_STORE_UNREACHABLE',
      message: expect.stringMatching(message) as string,
    })
    server.close()
  })

  it('gives up a server that accepts and says nothing, and hangs up', async () => {
    const hangUps: Promise<void>[] = []
    const { server, port } = await listen((socket) => hangUps.push(ended(socket)))
    const attempt = connectStore({ host: '127.0.0.1', port, token, timeout: 50 })
    await expect(attempt).rejects.toMatchObject({
      code: 'ERR_TSR_STORE_UNREACHABLE',
      message: expect.stringContaining('no answer') as string,
    })
    await Promise.all(hangUps)
    server.close()
  })

  it('refuses an impossible port or time-out', async () => {
    const argument = { code: 'ERR_TSR_ARGUMENT' }
    const host = '127.0.0.1'
    await expect(connectStore({ host, port: 0, token })).rejects.toMatchObject(argument)
    await expect(connectStore({ host, port: 1, token, timeout: -1 })).rejects.toMatchObject(
      argument,
    )
    await expect(connectStore({ host, port: 1, token: 5 as never })).rejects.toMatchObject(argument)
  })
})

describe('a connection to the store', () => {
  it('carries 200 blocked calls, and the one that releases them', async () => {
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
    const closed = { code: 'ERR_TSR_STORE_CLOSED', isConsequence: true }
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

  it('refuses a request that does not fit into a frame, and goes on', async () => {
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

  it('drops a server that breaks the protocol', async () => {
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

  describe('to a server that has stopped to answer', () => {
    beforeEach(() => {
      jest.useFakeTimers({
        doNotFake: ['setImmediate', 'nextTick', 'queueMicrotask', 'performance'],
      })
    })
    afterEach(() => {
      jest.useRealTimers()
    })

    it('gives up every call after its time-out', async () => {
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

describe('processes and the store', () => {
  const children: ChildProcess[] = []
  afterEach(async () => {
    for (const child of children.splice(0)) {
      if (child.exitCode !== null || child.signalCode !== null) continue
      child.kill('SIGKILL')
      await once(child, 'exit')
    }
  })

  function run(fixture: string, ...args: string[]): ChildProcess {
    const script = fileURLToPath(new URL(`./fixtures/${fixture}`, import.meta.url))
    const flags = ['--import', 'tsx', '--conditions=@tsrun/source']
    const child = spawn(process.execPath, [...flags, script, ...args], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    children.push(child)
    return child
  }

  it('keeps a process alive while a call is pending, and no longer', async () => {
    const server = await startStoreServer({ token })
    const { host, port } = server.endpoint
    const child = run('idle-client.ts', host, String(port), token)
    const exit = once(child, 'exit')
    await server.local.get('arrived')
    await until(() => server.inspect().waiting === 1)
    await server.local.set('go', '')
    expect(await exit).toEqual([0, null])
    expect(await server.local.check(['left'])).toBe(true)
    await until(() => server.inspect().connections === 0)
    await server.close()
  }, 30_000)

  it('tells every client when the process that hosts the store is killed', async () => {
    const host = run('host.ts', token)
    const [line] = (await once(host.stdout!, 'data')) as [Buffer]
    const store = await connectStore({ host: '127.0.0.1', port: Number(line.toString()), token })
    const pending = store.get('k')
    host.kill('SIGKILL')
    await expect(pending).rejects.toMatchObject({ code: 'ERR_TSR_STORE_CLOSED' })
  }, 30_000)
})

async function listen(
  onSocket: (socket: Socket) => void,
): Promise<{ server: Server; port: number }> {
  const server = createServer((socket) => {
    socket.on('error', () => undefined)
    onSocket(socket)
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  return { server, port: (server.address() as { port: number }).port }
}

/** The server's side of the handshake. */
async function accept(socket: Socket): Promise<void> {
  const handshake = serverHandshake(token, 'store')
  const [hello] = (await once(socket, 'data')) as [Buffer]
  socket.write(handshake.answer(hello)!)
  await once(socket, 'data')
}

function otherVersion(hello: Buffer): Uint8Array {
  const answer = serverHandshake(token, 'store').answer(hello)!
  answer[4] = 99
  return answer
}
