import { once } from 'node:events'
import { connect, createServer, type AddressInfo, type Socket } from 'node:net'
import type { Heap } from '../arena/heap.ts'
import { takeChunks, type Chunks } from './chunks.ts'
import {
  LARGEST_QUEUE,
  listenAtFreePort,
  type ByteChannel,
  type Dialer,
  type Endpoint,
  type ListenOptions,
} from './dialer.ts'
import { ALTERED, regionOf, sealStream } from './sealed-stream.ts'
import { ALTERED_REASON, CLOSED, type EventTransport } from './transport.ts'

/** Limit in bytes per peer, for the unsent data in Node's buffers and for the unread received data. */
const HIGH_WATER = 1024 * 1024
/** Bytes to pass to Node at once. Buffers are reused, as new ones cause page faults. */
const PIECE = 256 * 1024
/** Size in bytes up to which a new buffer is cheaper than reusing one. */
const SMALL = 16 * 1024
/** Number of records to pass to Node at once, because each call is expensive. */
const RECORDS = 10
const KEPT = 16

/**
 * Uses node:net sockets, for platforms without koffi. The bytes on the network are the same as with
 * `tcp`, but each byte is copied once more.
 */
export function nodeTransport(
  heap: Heap,
  channels: readonly (SocketChannel | undefined)[],
  hosts?: readonly number[],
): EventTransport {
  const pieces: Uint8Array[] = []

  const send = (peer: SocketChannel, bytes: Uint8Array, at: number, length: number): number => {
    if (peer.closed !== undefined) return CLOSED
    const room = HIGH_WATER - peer.socket.writableLength
    if (room <= 0) return 0
    const taken = Math.min(length, room, PIECE)
    // Copy the bytes, because the caller may change them before the kernel has taken them.
    if (taken <= SMALL) {
      peer.socket.write(bytes.slice(at, at + taken))
      return taken
    }
    const piece = pieces.pop() ?? new Uint8Array(PIECE)
    piece.set(bytes.subarray(at, at + taken))
    peer.socket.write(piece.subarray(0, taken), () => {
      if (pieces.length < KEPT) pieces.push(piece)
    })
    return taken
  }

  const seals = channels.map(
    (channel) => channel?.keys && sealStream(regionOf(heap.bytes), channel.keys, RECORDS),
  )
  const adopt = (channel: SocketChannel): void => {
    const { socket } = channel
    channel.limit = HIGH_WATER
    channel.onChange = () => {
      transport.onReady()
    }
    socket.setKeepAlive(true, 10_000)
    socket.on('drain', channel.onChange)
    socket.on('end', () => {
      channel.end('it closed the connection')
    })
    // Register this listener before the handshake's listener: the first reason for an end is reported.
    socket.prependListener('close', () => {
      channel.end('the connection was closed')
    })
  }

  const transport: EventTransport = {
    name: 'node',
    hosts,
    onReady: () => undefined,
    trySend: (index, at, length, more) => {
      const peer = channels[index]!
      const seal = seals[index]
      if (seal === undefined) return send(peer, heap.bytes, at, length)
      return seal.send(at, length, more, ({ bytes }, from, count) => send(peer, bytes, from, count))
    },
    tryReceive: (index, at, length) => {
      const peer = channels[index]!
      const seal = seals[index]
      if (seal === undefined) return receive(peer, heap.bytes, at, length)
      const taken = seal.receive(at, length, ({ bytes }, to, room) =>
        receive(peer, bytes, to, room),
      )
      if (taken !== ALTERED) return taken
      peer.closed = ALTERED_REASON
      peer.chunks = []
      peer.socket.destroy()
      return CLOSED
    },
    closeReason: (index) => channels[index]?.closed ?? '',
    closePeer: (index) => {
      channels[index]?.socket.end()
    },
    close: () => {
      for (const seal of seals) seal?.close()
      for (const channel of channels) channel?.socket.destroySoon()
    },
  }
  for (const channel of channels) if (channel !== undefined) adopt(channel)
  return transport
}

function receive(peer: SocketChannel, bytes: Uint8Array, at: number, length: number): number {
  const taken = takeChunks(peer, bytes, at, length)
  if (taken === 0 && peer.closed !== undefined) return CLOSED
  peer.held -= taken
  if (peer.held < peer.limit && peer.socket.isPaused()) peer.socket.resume()
  return taken
}

export async function openNodeDialer(options: ListenOptions): Promise<Dialer<SocketChannel>> {
  /** Accepted connections whose handshake has not started. Nothing is read from them. */
  const callers: Socket[] = []
  let wake: (() => void) | undefined
  let listening = true
  const server = createServer({ noDelay: true, pauseOnConnect: true }, (socket) => {
    socket.on('error', () => undefined)
    callers.push(socket)
    if (callers.length > LARGEST_QUEUE) callers.shift()?.destroy()
    wake?.()
  })
  const { host } = options
  await listenAtFreePort(
    options,
    async (port) => {
      server.listen(port, host)
      await once(server, 'listening')
    },
    (error) => (error as NodeJS.ErrnoException).code === 'EADDRINUSE',
  )
  const { port } = server.address() as AddressInfo
  return {
    endpoint: { host, port },
    async accept() {
      for (;;) {
        const caller = callers.shift()
        if (caller !== undefined) return socketChannel(caller)
        if (!listening) throw new Error('stopped listening')
        await new Promise<void>((resolve) => {
          wake = resolve
        })
      }
    },
    async dial(to: Endpoint, signal?: AbortSignal) {
      const socket = connect({ host: to.host, port: to.port, noDelay: true })
      const giveUp = (): void => {
        socket.destroy(new Error('given up'))
      }
      signal?.addEventListener('abort', giveUp)
      try {
        await once(socket, 'connect')
      } finally {
        signal?.removeEventListener('abort', giveUp)
      }
      return socketChannel(socket)
    },
    stopListening() {
      listening = false
      server.close()
      for (const caller of callers.splice(0)) caller.destroy()
      wake?.()
    },
  }
}

/** Largest number of bytes to read ahead during a handshake. */
const LARGEST_REST = 64 * 1024

/** A node:net socket, with the received bytes that were not yet read. */
export interface SocketChannel extends ByteChannel, Chunks {
  readonly socket: Socket
  held: number
  /** Number of bytes to hold before the socket pauses. */
  limit: number
  /** The reason why the stream has ended; undefined while it is open. */
  closed: string | undefined
  /** Called when bytes have arrived or the stream has ended. */
  onChange: () => void
  end(reason: string): void
}

export function socketChannel(socket: Socket): SocketChannel {
  const channel: SocketChannel = {
    socket,
    chunks: [],
    offset: 0,
    held: 0,
    // A handshake is short. Stop reading if a peer sends more.
    limit: LARGEST_REST,
    closed: undefined,
    onChange: () => undefined,
    from: socket.remoteAddress ?? '',
    write: async (bytes) => {
      await new Promise<void>((resolve, reject) => {
        socket.write(bytes, (error) => {
          if (error === undefined || error === null) resolve()
          else reject(error)
        })
      })
    },
    read: async (length) => {
      while (channel.held < length) {
        if (channel.closed !== undefined) throw new Error(channel.closed)
        await new Promise<void>((resolve) => {
          channel.onChange = resolve
        })
      }
      const bytes = new Uint8Array(length)
      receive(channel, bytes, 0, length)
      return bytes
    },
    end: (reason) => {
      channel.closed ??= reason
      channel.onChange()
    },
    close: () => {
      socket.destroy()
    },
  }
  socket.on('data', (chunk: Buffer) => {
    channel.chunks.push(chunk)
    channel.held += chunk.length
    if (channel.held >= channel.limit) socket.pause()
    channel.onChange()
  })
  socket.resume()
  socket.on('error', (error) => {
    channel.end(error.message)
  })
  socket.on('close', () => {
    channel.end('the connection ended')
  })
  return channel
}
