import { once } from 'node:events'
import { connect, createServer, type AddressInfo } from 'node:net'
import type { Protection, TsrError } from '@tsrun/core'
import type { Heap } from '../../internals/distributed/arena.ts'
import {
  connectMesh,
  nodeTransport,
  openNodeDialer,
  openTcpDialer,
  tcpTransport,
  type ByteChannel,
  type Dialer,
  type MeshEndpoint,
  type SocketChannel,
  type DescriptorChannel,
  type Transport,
} from '../../internals/distributed/transports.ts'
import { SteppedWorld } from '../support/stepped-world.ts'

// The unauthenticated connections are this test's own.
process.env['TSRUN_LOG_LEVEL'] = 'silent'

const token = 'ab'.repeat(32)
const listen = { host: '127.0.0.1', ports: undefined, rank: 0 }
const ends: (() => void)[] = []

afterEach(() => {
  for (const end of ends.splice(0)) end()
})

/**
 * A relay between two ranks that sees each piece of bytes and forwards what `change` makes of it.
 *
 * @returns where to dial instead
 */
async function interfere(
  to: MeshEndpoint,
  change: (bytes: Buffer, fromCaller: boolean) => Buffer,
): Promise<MeshEndpoint> {
  const relay = createServer((caller) => {
    const called = connect(to)
    for (const [from, other] of [
      [caller, called],
      [called, caller],
    ] as const) {
      from.on('data', (bytes) => other.write(change(bytes, from === caller)))
      from
        .on('error', () => undefined)
        .on('close', () => {
          other.destroySoon()
        })
    }
    ends.push(() => {
      caller.destroy()
      called.destroy()
    })
  })
  relay.listen(0, '127.0.0.1')
  await once(relay, 'listening')
  ends.push(() => {
    relay.close()
  })
  return { ...to, port: (relay.address() as AddressInfo).port }
}

type Kind = 'tcp' | 'node'

interface Setup {
  readonly protections?: readonly [Protection, Protection]
  /** By rank: what a rank expects its callers to know, and what its caller knows. */
  readonly secrets?: readonly [string | undefined, string | undefined]
  readonly change?: (bytes: Buffer, fromCaller: boolean) => Buffer
  /** Milliseconds; short where they cannot meet. */
  readonly timeout?: number
}

/** Two ranks. Rank 1 dials rank 0, perhaps through a relay. */
async function meet(
  kind: Kind,
  {
    protections = ['encrypted', 'encrypted'],
    secrets = ['s', 's'],
    change,
    timeout = 20_000,
  }: Setup,
): Promise<PromiseSettledResult<(ByteChannel | undefined)[]>[]> {
  const dialers: Dialer<ByteChannel>[] = []
  for (const rank of [0, 1]) {
    const dialer = await (kind === 'tcp' ? openTcpDialer(listen) : openNodeDialer(listen))
    dialers[rank] = dialer
    ends.push(() => {
      dialer.stopListening()
    })
  }
  const own = dialers.map(({ endpoint }) => endpoint)
  const between = change === undefined ? own[0]! : await interfere(own[0]!, change)
  return await Promise.allSettled(
    dialers.map((dialer, rank) => {
      const endpoints = [{ ...(rank === 1 ? between : own[0]!), secret: secrets[rank] }, own[1]!]
      const facts = { token, purpose: 'test', timeout }
      return connectMesh(dialer, { ...facts, endpoints, rank, protection: protections[rank]! })
    }),
  )
}

async function worldOf(kind: Kind, setup: Setup): Promise<SteppedWorld> {
  const meshes = (await meet(kind, setup)).map((outcome) => {
    if (outcome.status === 'rejected') throw outcome.reason as Error
    return outcome.value
  })
  const open = (rank: number, heap: Heap): Transport => {
    const channels = meshes[rank]!
    const keys = channels.map((channel) => channel?.keys)
    if (kind === 'node') return nodeTransport(heap, channels as SocketChannel[])
    const fds = (channels as (DescriptorChannel | undefined)[]).map((channel) => channel?.fd)
    return tcpTransport(heap, fds, undefined, undefined, keys)
  }
  const world = new SteppedWorld(2, { transport: open })
  ends.push(() => {
    for (const { transport } of world.ranks) transport.close()
  })
  return world
}

/** An all-reduce that is large enough to be on its way for a while. */
async function reduce(world: SteppedWorld): Promise<(TsrError | undefined)[]> {
  const buffers = world.groups.map((group) => new Float32Array(200_000).fill(group.rank + 1))
  const outcomes = await world.outcomes(
    world.groups.map((group, rank) => group.allReduce(buffers[rank]!)),
  )
  if (outcomes.every((error) => error === undefined)) {
    for (const buffer of buffers) expect(buffer.every((value) => value === 3)).toBe(true)
  }
  return outcomes as (TsrError | undefined)[]
}

describe.each(['tcp', 'node'] as const)('ranks over %s that encrypt', (kind) => {
  it('reveal nothing of their tensors to a listener', async () => {
    const heard: Buffer[] = []
    const world = await worldOf(kind, {
      change: (bytes) => {
        heard.push(bytes)
        return bytes
      },
    })
    const text = Buffer.from('what nobody else may know')
    const received = new Uint8Array(text.length)
    const [a, b] = world.groups
    await world.finish([a!.send(new Uint8Array(text), 1), b!.recv(received, 0)])
    expect(Buffer.from(received).toString()).toBe(text.toString())
    expect(await reduce(world)).toEqual([undefined, undefined])
    const all = Buffer.concat(heard)
    expect(all.length).toBeGreaterThan(1_000_000)
    expect(all.includes(text)).toBe(false)
    // 1 and 2 as float32, as they were sent
    expect(all.includes(Buffer.from(new Float32Array(4).fill(1).buffer))).toBe(false)
    expect(all.includes(Buffer.from(new Float32Array(4).fill(2).buffer))).toBe(false)
  })

  it.each([
    ['changes a bit', (bytes: Buffer) => bytes.fill(bytes.at(-1)! ^ 1, bytes.length - 1)],
    ['repeats bytes', (bytes: Buffer) => Buffer.concat([bytes, bytes])],
    ['drops a byte', (bytes: Buffer) => bytes.subarray(0, -1)],
    ['reorders bytes', (bytes: Buffer) => Buffer.from(bytes.toReversed())],
    ['adds bytes', (bytes: Buffer) => Buffer.concat([bytes, Buffer.alloc(100_000)])],
  ])('fail if a relay %s', async (_, change) => {
    let interferes = false
    const world = await worldOf(kind, {
      change: (bytes, fromCaller) => {
        if (!interferes || !fromCaller || bytes.length < 10_000) return bytes
        interferes = false
        return change(bytes)
      },
    })
    expect(await reduce(world)).toEqual([undefined, undefined])
    interferes = true
    const [error] = await reduce(world)
    expect(error).toMatchObject({ code: 'ERR_TSR_PEER_LOST', facts: { peer: 1 } })
    expect(error!.facts['reason']).toBe('what it sent was changed, repeated or left out on the way')
  })

  it.each([
    [['encrypted', 'none'], 'no --tls'],
    [['none', 'encrypted'], '--tls'],
  ] as const)('refuse ranks without encryption: %s', async (protections, has) => {
    const [first, second] = await meet(kind, { protections, timeout: 500 })
    const reason = (second as PromiseRejectedResult).reason as TsrError
    expect(reason).toMatchObject({ code: 'ERR_TSR_CONNECT', facts: { rank: 1, peer: 0 } })
    expect(reason.facts['reason']).toBe(`it was started otherwise; this rank has ${has}`)
    expect(first).toMatchObject({ status: 'rejected', reason: { code: 'ERR_TSR_CONNECT' } })
  })

  it('refuse a peer that knows the token but not the secret of the job', async () => {
    const [first, second] = await meet(kind, { secrets: ['secret', undefined], timeout: 500 })
    expect(first?.status).toBe('rejected')
    const { reason } = second as PromiseRejectedResult
    expect((reason as Error).message).toContain('it fails the handshake (token)')
  })
})

it('a relay that impersonates both ranks cannot read what they send', async () => {
  // who swaps the public keys for others has no proof that fits
  const [first, second] = await meet('tcp', {
    timeout: 500,
    change: (bytes) => (bytes.length === 40 ? bytes.fill(7, 8, 40) : bytes),
  })
  expect(first?.status).toBe('rejected')
  expect((second as PromiseRejectedResult).reason).toMatchObject({ code: 'ERR_TSR_CONNECT' })
})
