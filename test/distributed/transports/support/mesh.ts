import { once } from 'node:events'
import { readdirSync } from 'node:fs'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import { clientHandshake } from '@tsrun/core'
import { closeNative, connectTcp, listenTcp } from '@tsrun/native'
import {
  connectMesh,
  openNodeDialer,
  openTcpDialer,
  type ByteChannel,
  type Dialer,
  type Endpoint,
  type MeshOptions,
} from '../../../internals/distributed/transports.ts'
import { errorOf } from '../../support/outcome.ts'

// The unauthenticated connections are this test's own.
process.env['TSRUN_LOG_LEVEL'] = 'silent'

export const token = 'ab'.repeat(32)
export const purpose = 'data test 0'

type AnyDialer = Dialer<ByteChannel>
export type Kind = 'tcp' | 'node'

const listen = { host: '127.0.0.1', ports: undefined, rank: 0 }

async function open(kind: Kind): Promise<AnyDialer> {
  return await (kind === 'tcp' ? openTcpDialer(listen) : openNodeDialer(listen))
}

/** An unauthenticated connection, whose errors are expected. */
async function call({ host, port }: Endpoint): Promise<Socket> {
  const socket = connect({ host, port })
  socket.on('error', () => undefined)
  await once(socket, 'connect')
  return socket
}

/** Resolves when the other side ends or resets the connection. */
async function turnedAway(socket: Socket): Promise<void> {
  socket.resume()
  if (!socket.closed) await new Promise((resolve) => socket.once('close', resolve))
}

/** What a mesh promises whose even and odd ranks have these transports. */
export function describeMesh(pairs: readonly (readonly [even: Kind, odd: Kind])[]): void {
  describe.each(pairs)('ranks over %s and %s', (even, odd) => {
    const kindOf = (rank: number): Kind => (rank % 2 === 0 ? even : odd)

    async function openAll(size: number): Promise<AnyDialer[]> {
      return await Promise.all(Array.from({ length: size }, (_, rank) => open(kindOf(rank))))
    }

    function join(
      dialers: readonly AnyDialer[],
      rank: number,
      options: Partial<MeshOptions> = {},
    ): Promise<(ByteChannel | undefined)[]> {
      const endpoints = dialers.map(({ endpoint }) => endpoint)
      return connectMesh(dialers[rank]!, {
        token,
        purpose,
        timeout: 30_000,
        ...options,
        rank,
        endpoints,
      })
    }

    it('open exactly one connection for each pair', async () => {
      const dialers = await openAll(5)
      const meshes = await Promise.all(dialers.map((_, rank) => join(dialers, rank)))
      for (const [rank, channels] of meshes.entries()) {
        for (const [peer, channel] of channels.entries()) {
          if (peer === rank) expect(channel).toBeUndefined()
          else await channel!.write(Uint8Array.of(rank, peer))
        }
      }
      for (const [rank, channels] of meshes.entries()) {
        for (const [peer, channel] of channels.entries()) {
          if (peer !== rank) expect([...(await channel!.read(2))]).toEqual([peer, rank])
        }
      }
      for (const channel of meshes.flat()) channel?.close()
    })

    it('open connections only between ranks that share no memory', async () => {
      const dialers = await openAll(4)
      const endpoints = dialers.map(({ endpoint }) => endpoint)
      // 0 and 1, and 2 and 3, share memory
      const meshes = await Promise.all(
        dialers.map((dialer, rank) =>
          connectMesh(dialer, {
            ...{ token, purpose, timeout: 30_000, rank, endpoints },
            apart: [rank ^ 1],
          }),
        ),
      )
      for (const [rank, channels] of meshes.entries()) {
        const connected = [...channels.keys()].filter((peer) => channels[peer] !== undefined)
        expect(connected).toEqual(rank < 2 ? [2, 3] : [0, 1])
      }
      for (const channel of meshes.flat()) channel?.close()
    })

    it('reject unauthenticated connections and keep waiting for the missing rank', async () => {
      const dialers = await openAll(2)
      const first = join(dialers, 0)
      const { endpoint } = dialers[0]!
      const strangers = await Promise.all(Array.from({ length: 5 }, () => call(endpoint)))
      const [noise, half, wrong, otherLife, otherJob] = strangers
      noise!.write(Buffer.alloc(100_000, 'GET / HTTP/1.1\r\n\r\n'))
      half!.write(clientHandshake(token, purpose).hello.subarray(0, 5))
      for (const [socket, secret, name] of [
        [wrong!, 'cd'.repeat(32), purpose],
        [otherLife!, token, 'data test 1'],
        [otherJob!, '', purpose],
      ] as const) {
        const handshake = clientHandshake(secret, name)
        socket.write(handshake.hello)
        socket.once('data', (hello: Buffer) => {
          const answer = handshake.answer(hello)
          if (!('proof' in answer)) throw new Error(answer.refused)
          socket.write(Buffer.concat([answer.proof, Buffer.from([1, 0, 0, 0])]))
        })
      }
      await Promise.all([noise, wrong, otherLife, otherJob].map((socket) => turnedAway(socket!)))
      const [mine, theirs] = await Promise.all([first, join(dialers, 1)])
      await mine[1]!.write(Uint8Array.of(42))
      expect([...(await theirs[0]!.read(1))]).toEqual([42])
      half!.destroy()
      for (const channel of [...mine, ...theirs]) channel?.close()
    })

    it('refuse a connection that was redirected to another rank', async () => {
      const dialers = await openAll(3)
      const endpoints = dialers.map(({ endpoint }) => endpoint)
      const options = { token, purpose, timeout: 1000 }
      const outcomes = await Promise.all(
        dialers.map((dialer, rank) => {
          // A relay redirects the connections of rank 2 to rank 0 to rank 1, and the other way round.
          const [zero, one, two] = endpoints as [Endpoint, Endpoint, Endpoint]
          const seen = rank === 2 ? [one, zero, two] : endpoints
          return errorOf(() => connectMesh(dialer, { ...options, rank, endpoints: seen }))
        }),
      )
      expect(outcomes.map((error) => (error as { code?: string } | undefined)?.code)).toEqual(
        Array(3).fill('ERR_TSR_CONNECT'),
      )
      expect(outcomes[2]?.message).toContain('it fails the handshake')
    })

    it('connect in spite of many unauthenticated connections', async () => {
      const dialers = await openAll(2)
      const first = join(dialers, 0)
      const crowd = await Promise.all(Array.from({ length: 400 }, () => call(dialers[0]!.endpoint)))
      const [mine, theirs] = await Promise.all([first, join(dialers, 1)])
      expect(mine[1]).toBeDefined()
      for (const channel of [...mine, ...theirs]) channel?.close()
      for (const socket of crowd) socket.destroy()
    })

    it.each([
      ['many connections from another address', '127.0.0.2', true, 40],
      ['many silent connections from their own address', '127.0.0.1', false, 40],
      ['many silent connections, with half a hello sent', '127.0.0.1', false, 20],
    ])('connect in spite of %s, even if a peer is slow', async (_, localAddress, speaks, sent) => {
      const dialers = await openAll(2)
      const { endpoint } = dialers[0]!
      // Nobody is rejected for being slow.
      const first = join(dialers, 0, { handshakeTime: 60_000, timeout: 55_000 })
      // rank 1, whose way is long
      const slow = connect({ ...endpoint, localAddress })
      await once(slow, 'connect')
      const handshake = clientHandshake(token, purpose, '1 to 0')
      slow.write(handshake.hello.subarray(0, sent))
      const answered = once(slow, 'data')
      // The bytes have been read before later connections are answered.
      for (let i = 0; i < 2; i++) {
        const other = await call(endpoint)
        other.write(clientHandshake(token, purpose).hello)
        await once(other, 'data')
        other.destroy()
      }
      // 256 are kept waiting
      const crowd = await Promise.all(Array.from({ length: 290 }, () => call(endpoint)))
      let gone = 0
      const enough = new Promise<void>((resolve) => {
        for (const socket of crowd) {
          void turnedAway(socket).then(() => {
            if (++gone === 30) resolve()
          })
          if (speaks) socket.write(clientHandshake(token, purpose).hello)
        }
      })
      await enough
      slow.write(handshake.hello.subarray(sent))
      const [hello] = (await answered) as [Buffer]
      const answer = handshake.answer(hello)
      if (!('proof' in answer)) throw new Error(answer.refused)
      slow.write(Buffer.concat([answer.proof, Buffer.from([1, 0, 0, 0])]))
      const [channel] = (await first).slice(1)
      expect(channel).toBeDefined()
      channel?.close()
      dialers[1]!.stopListening()
      for (const socket of [slow, ...crowd]) socket.destroy()
    })

    it('refuse a second rank with the same number', async () => {
      const dialers = await openAll(3)
      const others = [
        errorOf(() => join(dialers, 0, { timeout: 500 })),
        errorOf(() => join(dialers, 1, { timeout: 400 })),
      ]
      const again = await errorOf(() => join(dialers, 1, { timeout: 200 }))
      expect(again).toMatchObject({ code: 'ERR_TSR_CONNECT' })
      await Promise.all(others)
      dialers[2]!.stopListening()
    })

    it('report the rank that refuses their connection', async () => {
      const dialers = await openAll(2)
      const first = errorOf(() => join(dialers, 0, { timeout: 500 }))
      const error = await errorOf(() => join(dialers, 1, { token: 'ef'.repeat(32), timeout: 300 }))
      expect(error).toMatchObject({ code: 'ERR_TSR_CONNECT', facts: { rank: 1, peer: 0 } })
      expect(error?.message).toMatch(/handshake|refuses|ended/)
      expect(await first).toMatchObject({ code: 'ERR_TSR_CONNECT', facts: { rank: 0, peer: 1 } })
    })

    it('report the rank that never dials', async () => {
      const dialers = await openAll(3)
      const meshes = [0, 2].map((rank) => join(dialers, rank, { timeout: 2000 }))
      const [first, last] = await Promise.all(meshes.map((mesh) => errorOf(() => mesh)))
      expect(first).toMatchObject({
        code: 'ERR_TSR_CONNECT',
        facts: { rank: 0, peer: 1, reason: 'it has not called' },
      })
      expect(last).toMatchObject({ code: 'ERR_TSR_CONNECT', facts: { rank: 2, peer: 1 } })
      dialers[1]!.stopListening()
    })

    it('report a peer that does not listen', async () => {
      const dialers = await openAll(2)
      const { endpoint } = dialers[0]!
      dialers[0]!.stopListening()
      const error = await errorOf(() => join(dialers, 1, { timeout: 200 }))
      expect(error).toMatchObject({ code: 'ERR_TSR_CONNECT', facts: { rank: 1, peer: 0 } })
      expect(error?.message).toContain(`${endpoint.host}:${endpoint.port}`)
    })

    it('stop dialing when one rank refuses their connection', async () => {
      const dialers = await openAll(3)
      const refusing = createServer((socket) => {
        // the caller ends the connection first where it is quick
        socket.on('error', () => undefined)
        socket.end(Buffer.alloc(1000))
      })
      const silent = createServer()
      const called = once(silent, 'connection') as Promise<[Socket]>
      for (const server of [refusing, silent]) {
        server.listen(0, '127.0.0.1')
        await once(server, 'listening')
      }
      const [first, second] = [refusing, silent].map((server, i) => {
        dialers[i]!.stopListening()
        const { port } = server.address() as AddressInfo
        return { ...dialers[i]!, endpoint: { host: '127.0.0.1', port } }
      })
      const failed = errorOf(() => join([first!, second!, dialers[2]!], 2))
      const [socket] = await called
      expect(await failed).toMatchObject({ code: 'ERR_TSR_CONNECT', facts: { peer: 0 } })
      await turnedAway(socket.on('error', () => undefined))
      for (const server of [refusing, silent]) server.close()
    }, 5000)

    it('close an unanswered dial as soon as it is aborted', async () => {
      // its queue is full, so that further calls are neither taken nor refused
      const listener = listenTcp({ host: '127.0.0.1', port: 0 }, 0)
      const { endpoint } = listener
      const filling = Array.from({ length: 4 }, () => connectTcp(endpoint))
      const [dialer] = await openAll(1)
      const over = new AbortController()
      const before = readdirSync('/proc/self/fd').length
      const dialing = dialer!.dial(endpoint, over.signal)
      dialing.catch(() => undefined)
      await new Promise((resolve) => setTimeout(resolve, 50))
      over.abort()
      await expect(dialing).rejects.toThrow()
      expect(readdirSync('/proc/self/fd').length).toBeLessThanOrEqual(before)
      for (const fd of [...filling, listener.fd]) closeNative(fd)
      dialer!.stopListening()
    })

    it('respect their time-out if a peer does not answer', async () => {
      const dialers = await openAll(2)
      // A full queue: the kernel drops new connections.
      const { fd, endpoint } = listenTcp({ host: '127.0.0.1', port: 0 }, 0)
      const crowd = Array.from({ length: 4 }, () => connectTcp(endpoint))
      const silent = { ...dialers[0]!, endpoint }
      const error = await errorOf(() => join([silent, dialers[1]!], 1, { timeout: 300 }))
      expect(error).toMatchObject({
        code: 'ERR_TSR_CONNECT',
        facts: { peer: 0, milliseconds: 300 },
      })
      for (const each of [fd, ...crowd]) closeNative(each)
      dialers[0]!.stopListening()
    })
  })
}
