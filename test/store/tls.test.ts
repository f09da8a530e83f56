import { readFileSync } from 'node:fs'
import { connect, createServer, type Socket } from 'node:net'
import { once } from 'node:events'
import type { Certificate } from '@tsrun/core'
import {
  connectStore,
  startStoreServer,
  type Store,
  type StoreServer,
  type StoreTls,
} from '@tsrun/store'

const token = 'ab'.repeat(32)

function certificate(name: string, ca = 'authority'): Certificate {
  const read = (file: string): string =>
    readFileSync(new URL(`../fixtures/tls/${file}`, import.meta.url), 'utf8')
  return { cert: read(`${name}.pem`), key: read(`${name}.key`), ca: read(`${ca}.pem`) }
}

const open: { close(): Promise<void> }[] = []
const refused: string[] = []

afterEach(async () => {
  for (const each of open.splice(0).reverse()) await each.close()
  refused.length = 0
})

async function serve(tls?: StoreTls | false): Promise<StoreServer> {
  const onRefused = (_: string, reason: string): void => void refused.push(reason)
  const server = await startStoreServer({ token, onRefused, ...(tls && { tls }) })
  open.push(server)
  return server
}

async function join(server: StoreServer, tls?: StoreTls | false, secret = token): Promise<Store> {
  const { endpoint } = server
  const store = await connectStore({
    ...endpoint,
    token: secret,
    timeout: 5000,
    ...(tls && { tls }),
  })
  open.push(store)
  return store
}

async function refusalOf(joining: Promise<Store>): Promise<unknown> {
  return await joining.then(
    () => 'joined',
    (error: unknown) => error,
  )
}

it('the option tls: true encrypts with keys from the token', async () => {
  const server = await serve(true)
  const store = await join(server, true)
  await store.set('a', 'b')
  const again = await join(server, true)
  expect(Buffer.from(await again.get('a')).toString()).toBe('b')
  expect(await refusalOf(join(server, false))).toMatchObject({ code: 'ERR_TSR_STORE_PROTECTION' })
})

it.each<[string, unknown, string]>([
  ['a text', 'yes', 'tls is a text of 3; expected true'],
  ['a number', 1, 'tls is number'],
  ['an object without a key', { cert: 'x' }, 'tls is object'],
])('the option tls is refused if it is %s', async (_, tls, problem) => {
  const given = { token, tls: tls as StoreTls }
  for (const start of [
    startStoreServer(given),
    connectStore({ ...given, host: '127.0.0.1', port: 1 }),
  ]) {
    await expect(start).rejects.toMatchObject({
      code: 'ERR_TSR_ARGUMENT',
      message: expect.stringContaining(problem) as string,
    })
  }
})

it('the option tls: true is refused with an empty token', async () => {
  await expect(startStoreServer({ token: '', tls: true })).rejects.toMatchObject({
    code: 'ERR_TSR_ARGUMENT',
    message: expect.stringContaining('from which the keys of tls come') as string,
  })
})

describe.each([
  ['the token', true],
  ['certificates', certificate('host')],
] as [string, StoreTls][])('a store that is encrypted with %s', (_, tls) => {
  it('serves small and large values, and many clients', async () => {
    const server = await serve(tls)
    const clients = await Promise.all(Array.from({ length: 8 }, () => join(server, tls)))
    const large = new Uint8Array(5_000_000).map((_byte, i) => i * 7)
    await clients[0]!.set('large', large)
    for (const client of clients.slice(1)) {
      expect(Buffer.compare(await client.get('large'), large)).toBe(0)
    }
    await Promise.all(clients.map((client) => client.add('count', 1)))
    expect(await clients[0]!.add('count', 0)).toBe(8)
    expect(server.inspect()).toMatchObject({ connections: 8, unauthenticated: 0 })
  })

  it('hides keys and values from an observer on the network', async () => {
    const server = await serve(tls)
    const heard: Buffer[] = []
    const relay = await relayTo(server.endpoint.port, (bytes) => {
      heard.push(bytes)
      return bytes
    })
    const store = await join({ ...server, endpoint: { host: '127.0.0.1', port: relay } }, tls)
    await store.set('a key that is secret', 'a value that is secret')
    await store.get('a key that is secret')
    const all = Buffer.concat(heard)
    expect(all.length).toBeGreaterThan(500)
    expect(all.includes('secret')).toBe(false)
  })

  it('refuses a client without encryption, and both sides report the reason', async () => {
    const error = await refusalOf(join(await serve(tls)))
    expect(error).toMatchObject({ code: 'ERR_TSR_STORE_PROTECTION' })
    expect((error as Error).message).toMatch(
      /^The store at 127\.0\.0\.1:\d+ encrypts its connections, and this process does not/,
    )
    expect(refused).toEqual(['it is not encrypted as this store is'])
  })

  it('has clients that refuse a store without encryption', async () => {
    const error = await refusalOf(join(await serve(), tls))
    expect(error).toMatchObject({ code: 'ERR_TSR_STORE_PROTECTION' })
    expect((error as Error).message).toMatch(
      /does not encrypt its connections, and this process does/,
    )
  })

  it('refuses a client with another token', async () => {
    const error = await refusalOf(join(await serve(tls), tls, 'cd'.repeat(32)))
    expect(error).toMatchObject({ code: 'ERR_TSR_STORE_AUTHENTICATION' })
  })

  it('drops unauthenticated clients', async () => {
    const server = await serve(tls)
    const { port } = server.endpoint
    for (const bytes of [Buffer.from('GET / HTTP/1.1\r\n\r\n'), Buffer.alloc(500, 0x16)]) {
      const stranger = connect(port, '127.0.0.1')
      stranger.on('error', () => undefined).resume()
      stranger.write(bytes)
      await once(stranger, 'close')
    }
    expect(refused).toHaveLength(2)
    expect(server.inspect()).toMatchObject({ connections: 0, unauthenticated: 0 })
    await (await join(server, tls)).set('key', 'value')
  })
})

it.each([
  ['of another authority', certificate('stranger', 'authority'), 'does not accept the certificate'],
  ['that trusts another authority', certificate('host', 'stranger'), ''],
  ['that has none', true, ''],
] as [string, StoreTls, string][])(
  'a store with a certificate refuses a client %s',
  async (_, tls, reason) => {
    const server = await serve(certificate('host'))
    const error = await refusalOf(join(server, tls))
    expect(error).toMatchObject({ code: 'ERR_TSR_STORE_TLS' })
    expect((error as Error).message).toContain(reason)
    expect(server.inspect().connections).toBe(0)
  },
)

it('a client that requires a certificate fails if the store has none', async () => {
  const error = await refusalOf(join(await serve(true), certificate('host')))
  expect(error).toMatchObject({ code: 'ERR_TSR_STORE_TLS' })
})

it('a client with a long round trip connects while many others dial', async () => {
  const server = await serve(true)
  // round trips of 500 ms, from another address than that of the crowd
  const relay = await relayTo(server.endpoint.port, (bytes) => bytes, 250)
  const state = { isIn: false }
  const joining = join({ ...server, endpoint: { host: '127.0.0.1', port: relay } }, true)
  void joining.finally(() => (state.isIn = true))
  const crowd: Socket[] = []
  while (!state.isIn) {
    for (let i = 0; i < 50; i++) {
      const stranger = connect(server.endpoint.port, '127.0.0.1')
      stranger.on('error', () => undefined).resume()
      crowd.push(stranger)
    }
    await once(crowd.at(-1)!, 'connect')
  }
  await (await joining).set('key', 'value')
  expect(crowd.length).toBeGreaterThan(500)
  expect(server.inspect().unauthenticated).toBeLessThanOrEqual(1024)
  for (const stranger of crowd) stranger.destroy()
})

/** A relay on the way to a port of this host; what it returns is passed on, after so many milliseconds. */
async function relayTo(
  port: number,
  change: (bytes: Buffer) => Buffer,
  delay = 0,
): Promise<number> {
  const server = createServer((from) => {
    const to = connect({ port, host: '127.0.0.1', localAddress: '127.0.0.2' })
    for (const [one, other] of [
      [from, to],
      [to, from],
    ] as const) {
      one.on('data', (bytes) => {
        setTimeout(() => other.write(change(bytes)), delay)
      })
      one.on('error', () => undefined).on('close', () => other.destroy())
    }
  })
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  open.push({
    close: async () => {
      server.close()
      await once(server, 'close')
    },
  })
  return (server.address() as { port: number }).port
}
