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
import { regionOf } from './sealed/record-cipher.ts'
import { ALTERED, sealStream, type SealedStream } from './sealed/sealed-stream.ts'
import { ALTERED_REASON, CLOSED, type EventTransport } from './transport.ts'

/**
 * Largest number of bytes that Node buffers for a slow peer, and that this rank buffers without
 * reading.
 */
const HIGH_WATER = 1024 * 1024
/**
 * Largest number of bytes to pass to Node at once. Buffers are reused, because a new buffer would
 * cause page faults.
 */
const PIECE = 256 * 1024
/** Size in bytes up to which a new buffer is cheaper than reusing one. */
const SMALL = 16 * 1024
/** Number of records to pass to Node at once, because each call is expensive. */
const RECORDS = 10
const KEPT = 16

interface Peer extends Chunks {
  readonly socket: Socket
  /** The encryption of the stream; undefined if the stream is not encrypted. */
  readonly seal: SealedStream | undefined
  held: number
  closed: string | undefined
}

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

  const send = (peer: Peer, bytes: Uint8Array, at: number, length: number): number => {
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

  const adopt = (channel: SocketChannel): Peer => {
    const { socket, keys } = channel
    const seal = keys && sealStream(regionOf(heap.bytes), keys, RECORDS)
    const peer: Peer = { socket, seal, ...channel.release() }
    socket.setKeepAlive(true, 10_000)
    socket.on('data', (chunk: Buffer) => {
      peer.chunks.push(chunk)
      peer.held += chunk.length
      if (peer.held >= HIGH_WATER) socket.pause()
      transport.onReady()
    })
    socket.on('drain', () => {
      transport.onReady()
    })
    const end = (reason: string): void => {
      peer.closed ??= reason
      transport.onReady()
    }
    socket.on('error', (error) => {
      end(error.message)
    })
    socket.on('end', () => {
      end('it closed the connection')
    })
    socket.on('close', () => {
      end('the connection was closed')
    })
    return peer
  }

  const transport: EventTransport = {
    name: 'node',
    hosts,
    onReady: () => undefined,
    trySend: (index, at, length, more) => {
      const peer = peers[index]!
      if (peer.seal === undefined) return send(peer, heap.bytes, at, length)
      return peer.seal.send(at, length, more, ({ bytes }, from, count) =>
        send(peer, bytes, from, count),
      )
    },
    tryReceive: (index, at, length) => {
      const peer = peers[index]!
      if (peer.seal === undefined) return receive(peer, heap.bytes, at, length)
      const taken = peer.seal.receive(at, length, ({ bytes }, to, room) =>
        receive(peer, bytes, to, room),
      )
      if (taken !== ALTERED) return taken
      peer.closed = ALTERED_REASON
      peer.chunks = []
      peer.socket.destroy()
      return CLOSED
    },
    // Every 'drain' event calls `onReady`.
    wantSend: () => undefined,
    closeReason: (index) => peers[index]?.closed ?? '',
    closePeer: (index) => {
      peers[index]?.socket.end()
    },
    close: () => {
      for (const peer of peers) {
        peer?.seal?.close()
        peer?.socket.destroySoon()
      }
    },
  }
  const peers = channels.map((channel) => channel && adopt(channel))
  return transport
}

function receive(peer: Peer, bytes: Uint8Array, at: number, length: number): number {
  const taken = takeChunks(peer, bytes, at, length)
  if (taken === 0 && peer.closed !== undefined) return CLOSED
  peer.held -= taken
  if (peer.held < HIGH_WATER && peer.socket.isPaused()) peer.socket.resume()
  return taken
}

export async function openNodeDialer(options: ListenOptions): Promise<Dialer<SocketChannel>> {
  /**
   * Accepted connections whose handshake has not started. Nothing is read from these connections.
   */
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

/** A node:net socket during the handshake. */
export interface SocketChannel extends ByteChannel {
  readonly socket: Socket
  /**
   * Stops reading. Returns the bytes that followed the handshake, and why the stream has ended, if
   * it has.
   */
  release(): Pick<Peer, 'chunks' | 'offset' | 'held' | 'closed'>
}

export function socketChannel(socket: Socket): SocketChannel {
  const rest: Chunks = { chunks: [], offset: 0 }
  let held = 0
  let wake: (() => void) | undefined
  let ended: string | undefined
  const onData = (chunk: Buffer): void => {
    rest.chunks.push(chunk)
    held += chunk.length
    // A handshake is short. Stop reading if a peer sends more.
    if (held > LARGEST_REST) socket.pause()
    wake?.()
  }
  const end = (reason: string): void => {
    ended ??= reason
    wake?.()
  }
  socket.on('data', onData)
  socket.resume()
  socket.on('error', (error) => {
    end(error.message)
  })
  socket.on('close', () => {
    end('the connection ended')
  })
  return {
    socket,
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
      while (held < length) {
        if (ended !== undefined) throw new Error(ended)
        await new Promise<void>((resolve) => {
          wake = resolve
        })
      }
      const bytes = new Uint8Array(length)
      takeChunks(rest, bytes, 0, length)
      held -= length
      if (held <= LARGEST_REST) socket.resume()
      return bytes
    },
    release: () => {
      socket.off('data', onData)
      return { ...rest, held, closed: ended }
    },
    close: () => {
      socket.destroy()
    },
  }
}
