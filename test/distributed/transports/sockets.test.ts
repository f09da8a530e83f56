import { once } from 'node:events'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import type { Protection, TsrError } from '@tsrun/core'
import {
  connectMesh,
  openNodeDialer,
  nodeTransport,
  socketChannel,
  openTcpDialer,
  tcpTransport,
  CLOSED,
  type Transport,
} from '../../internals/distributed/transports.ts'
import { createMemory, heapOf, type Heap } from '../../internals/distributed/arena.ts'
import { eventually, turns } from '../support/outcome.ts'
import { SteppedWorld } from '../support/stepped-world.ts'

type Kind = 'tcp' | 'node'

const listen = { host: '127.0.0.1', ports: undefined, rank: 0 }

/** A stepped world over real sockets of the given kind for each rank. */
async function worldOver(
  kinds: readonly Kind[],
  protection: Protection = 'none',
): Promise<SteppedWorld> {
  const dialers = await Promise.all(
    kinds.map(async (kind) =>
      kind === 'tcp'
        ? ({ kind, dialer: await openTcpDialer(listen) } as const)
        : ({ kind, dialer: await openNodeDialer(listen) } as const),
    ),
  )
  const endpoints = dialers.map(({ dialer }) => dialer.endpoint)
  const options = { token: 'aa', purpose: 'test', protection, endpoints, timeout: 20_000 }
  const openers = await Promise.all(
    dialers.map(async ({ kind, dialer }, rank) => {
      if (kind === 'tcp') {
        const channels = await connectMesh(dialer, { ...options, rank })
        const fds = channels.map((channel) => channel?.fd)
        const keys = channels.map((channel) => channel?.keys)
        return (heap: Heap): Transport => tcpTransport(heap, fds, undefined, undefined, keys)
      }
      const channels = await connectMesh(dialer, { ...options, rank })
      return (heap: Heap): Transport => nodeTransport(heap, channels)
    }),
  )
  return new SteppedWorld(kinds.length, {
    memory: 64 * 1024 * 1024,
    transport: (rank, heap) => openers[rank]!(heap),
  })
}

const pairs: [Kind, Kind][] = [
  ['tcp', 'tcp'],
  ['node', 'node'],
  ['tcp', 'node'],
  ['node', 'tcp'],
]
const worlds = pairs.flatMap(([one, other]) => [
  { one, other, protection: 'none' as const },
  { one, other, protection: 'encrypted' as const },
])
const open: SteppedWorld[] = []

async function start(kinds: readonly Kind[], protection?: Protection): Promise<SteppedWorld> {
  const world = await worldOver(kinds, protection)
  open.push(world)
  return world
}

afterEach(() => {
  for (const { transport } of open.splice(0).flatMap(({ ranks }) => ranks)) transport.close()
})

describe.each(worlds)('sockets of $one and $other, $protection', ({ one, other, protection }) => {
  const kinds = [one, other]

  it('carry messages of every size both ways', async () => {
    const world = await start([...kinds, one], protection)
    const lengths = [0, 1, 1000, 100_000, 1_000_000]
    for (const length of lengths) {
      const buffers = world.groups.map((group) => new Float32Array(length).fill(group.rank + 1))
      await world.finish(world.groups.map((group, i) => group.allReduce(buffers[i]!)))
      for (const buffer of buffers) expect(buffer.every((value) => value === 6)).toBe(true)
    }
  })

  it('deliver all messages of a sender that left, even if both sides send', async () => {
    const world = await start(kinds, protection)
    const [a, b] = world.groups
    const count = 40
    const received = Array.from({ length: count }, () => new Float32Array(50_000))
    const receives = received.map((buffer) => b!.recv(buffer, 0))
    const sends = received.map((_, i) => a!.send(new Float32Array(50_000).fill(i), 1))
    await world.finish(sends)
    // b does not read any more, but sends; a leaves with most of it still on its way
    for (let i = 0; i < 20; i++) void b!.send(new Float32Array(3000), 0)
    await a!.destroy()
    for (let i = 0; i < 50; i++) {
      world.step([0])
      await turns(1)
    }
    await world.finish(receives)
    for (const [i, buffer] of received.entries()) {
      expect(buffer.every((value) => value === i)).toBe(true)
    }
    await eventually(() => {
      world.step()
      return !world.ranks[0]!.engine.hasPeers()
    })
  })

  it('report why the connection ended', async () => {
    const world = await start(kinds, protection)
    const [a] = world.groups
    const receive = a!.recv(new Float32Array(4), 1)
    world.ranks[1]!.transport.close()
    const [error] = (await world.outcomes([receive])) as [TsrError]
    expect(error).toMatchObject({ code: 'ERR_TSR_PEER_LOST', facts: { peer: 1 } })
    expect(error.facts['reason']).toMatch(/closed the connection|connection was closed/)
  })
})

describe('tcp sockets', () => {
  it('keep received data readable after sending has failed', async () => {
    const world = await start(['tcp', 'tcp'])
    const [mine, theirs] = world.ranks.map(({ transport }) => transport)
    expect(theirs!.trySend(0, 0, 10_000, false)).toBe(10_000)
    theirs!.close()
    await eventually(() => mine!.trySend(1, 0, 10, false) === CLOSED)
    let read = 0
    await eventually(() => {
      read += mine!.tryReceive(1, 0, 10_000)
      return read >= 10_000
    })
    expect(read).toBe(10_000)
    expect(mine!.tryReceive(1, 0, 10)).toBe(CLOSED)
    expect(mine!.closeReason(1)).toMatch(/^the connection failed with (ECONNRESET|EPIPE)$/)
  })
})

describe('node sockets', () => {
  it('notice that the connection ended before the transport took over', async () => {
    const server = createServer().listen(0, '127.0.0.1')
    await once(server, 'listening')
    const accepted = once(server, 'connection') as Promise<[Socket]>
    const caller = connect((server.address() as AddressInfo).port, '127.0.0.1')
    const [socket] = await accepted
    const channel = socketChannel(socket)
    caller.end('last words')
    await once(socket, 'close')
    const heap = heapOf(createMemory(1024 * 1024))
    const transport = nodeTransport(heap, [undefined, channel])
    expect(transport.tryReceive(1, 0, 100)).toBe(10)
    expect(transport.tryReceive(1, 0, 100)).toBe(CLOSED)
    expect(transport.trySend(1, 0, 10, false)).toBe(CLOSED)
    expect(transport.closeReason(1)).toBe('the connection ended')
    server.close()
  })

  it('apply back-pressure to the sender if the receiver does not read', async () => {
    const world = await start(['node', 'node'])
    const { transport } = world.ranks[0]!
    let taken = 0
    let since = performance.now()
    await eventually(() => {
      const more = transport.trySend(1, 0, 1_000_000, false)
      if (more > 0) since = performance.now()
      taken += more
      return performance.now() - since > 300
    })
    // what the two kernels and both transports hold
    expect(taken).toBeLessThan(40_000_000)
    expect(transport.trySend(1, 0, 1_000_000, false)).toBe(0)
  })
})
