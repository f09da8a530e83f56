import { serverHandshake } from '@tsrun/core'
import { connectStore, startStoreServer, type StoreServer } from '@tsrun/store'
import { ended } from './raw-client.ts'
import { listen } from './raw-server.ts'
import { token } from './stores.ts'

describe('connecting to the store', () => {
  it('retries until the server listens, and reports why', async () => {
    // An address of its own: no other process can take the port between the attempts.
    const endpoint = { host: '127.83.11.1', port: 29511 }
    const reasons: string[] = []
    let server: Promise<StoreServer> | undefined
    const store = await connectStore({
      ...endpoint,
      token,
      timeout: 20_000,
      onRetry: (reason) => {
        reasons.push(reason)
        server ??= startStoreServer({ ...endpoint, token })
      },
    })
    await store.set('k', 'v')
    expect(reasons[0]).toContain('ECONNREFUSED')
    expect(store).toMatchObject({ localAddress: '127.0.0.1', remoteAddress: '127.83.11.1' })
    await store.close()
    await (await server!).close()
  })

  it.each([
    ['nobody listens', '127.83.11.2', /ECONNREFUSED/],
    ['the name is unknown', `${'x'.repeat(64)}.invalid`, /ENOTFOUND|EAI_AGAIN/],
  ])('retries when %s, and reports the reason', async (_, host, reason) => {
    const abort = new AbortController()
    const reasons: string[] = []
    const attempt = connectStore({
      host,
      port: 29511,
      token,
      signal: abort.signal,
      onRetry: (why) => {
        if (reasons.push(why) === 2) abort.abort()
      },
    })
    await expect(attempt).rejects.toMatchObject({ code: 'ERR_TSR_ABORTED' })
    expect(reasons[1]).toMatch(reason)
  })

  it('gives up after the time-out, naming the endpoint', async () => {
    const attempt = connectStore({ host: '127.83.11.2', port: 29511, token, timeout: 50 })
    await expect(attempt).rejects.toMatchObject({
      code: 'ERR_TSR_STORE_UNREACHABLE',
      message: expect.stringContaining('127.83.11.2:29511') as string,
    })
  })

  it('fails at once if the tokens differ', async () => {
    const server = await startStoreServer({ token })
    const attempt = connectStore({ ...server.endpoint, token: 'ef'.repeat(16), timeout: 60_000 })
    await expect(attempt).rejects.toMatchObject({ code: 'ERR_TSR_STORE_AUTHENTICATION' })
    const trusted = await connectStore({ ...server.endpoint, token })
    await trusted.set('k', '')
    await server.close()
  })

  it('stops and disconnects when it is aborted while it waits for an answer', async () => {
    const abort = new AbortController()
    const hangUps: Promise<void>[] = []
    const { server, port } = await listen((socket) => {
      hangUps.push(ended(socket))
      abort.abort()
    })
    const attempt = connectStore({ host: '127.0.0.1', port, token, signal: abort.signal })
    await expect(attempt).rejects.toMatchObject({ code: 'ERR_TSR_ABORTED' })
    await Promise.all(hangUps)
    server.close()
  })

  it('stops when it is aborted before or between attempts', async () => {
    const endpoint = { host: '127.83.11.3', port: 29511, token }
    const gone = { code: 'ERR_TSR_ABORTED' }
    await expect(connectStore({ ...endpoint, signal: AbortSignal.abort() })).rejects.toMatchObject(
      gone,
    )
    const abort = new AbortController()
    const attempt = connectStore({
      ...endpoint,
      signal: abort.signal,
      onRetry: () => {
        abort.abort()
      },
    })
    await expect(attempt).rejects.toMatchObject(gone)
  })

  it.each([
    [
      'another service',
      () => Buffer.alloc(72, 'HTTP/1.1 400 Bad Request\r\n'),
      /not a store of tsrun/,
    ],
    ['another version', otherVersion, /another version of tsrun/],
  ])('reports %s at the endpoint', async (_, answer, message) => {
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

  it('times out and disconnects if the server accepts but stays silent', async () => {
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

function otherVersion(hello: Buffer): Uint8Array {
  const answer = serverHandshake(token, 'store').answer(hello)!
  answer[4] = 99
  return answer
}
