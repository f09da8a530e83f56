import type { Socket } from 'node:net'
import type { Heap } from '../../arena/heap.ts'
import { CLOSED, type EventTransport } from '../transport.ts'
import type { SocketChannel } from './socket-channel.ts'

/** Bytes that Node may hold for a peer that reads slowly, and that we hold unread. */
const HIGH_WATER = 1024 * 1024
/** Bytes handed to Node in one piece. Its buffer is used again: new ones would be paged in each time. */
const PIECE = 256 * 1024
/** Up to so many bytes a new buffer is cheaper. */
const SMALL = 16 * 1024
/** Free pieces that are kept. */
const KEPT = 16

interface Peer {
  readonly socket: Socket
  chunks: Buffer[]
  /** Bytes of the first chunk that were taken. */
  offset: number
  held: number
  closed: string | undefined
}

/** node:net sockets, for platforms without koffi. The same bytes as `tcp`, with one copy more. */
export class NodeTransport implements EventTransport {
  readonly name = 'node'
  readonly hosts: readonly number[] | undefined
  onReady: () => void = () => undefined
  readonly #heap: Heap
  readonly #peers: (Peer | undefined)[]
  readonly #pieces: Uint8Array[] = []

  constructor(
    heap: Heap,
    channels: readonly (SocketChannel | undefined)[],
    hosts?: readonly number[],
  ) {
    this.#heap = heap
    this.hosts = hosts
    this.#peers = channels.map((channel) => channel && this.#adopt(channel))
  }

  trySend(index: number, at: number, length: number): number {
    const peer = this.#peers[index]!
    if (peer.closed !== undefined) return CLOSED
    const room = HIGH_WATER - peer.socket.writableLength
    if (room <= 0) return 0
    const taken = Math.min(length, room, PIECE)
    // copied, because the arena's bytes may change before the kernel has taken them
    if (taken <= SMALL) {
      peer.socket.write(this.#heap.bytes.slice(at, at + taken))
      return taken
    }
    const piece = this.#pieces.pop() ?? new Uint8Array(PIECE)
    piece.set(this.#heap.bytes.subarray(at, at + taken))
    peer.socket.write(piece.subarray(0, taken), () => {
      if (this.#pieces.length < KEPT) this.#pieces.push(piece)
    })
    return taken
  }

  tryReceive(index: number, at: number, length: number): number {
    const peer = this.#peers[index]!
    const [chunk] = peer.chunks
    if (chunk === undefined) return peer.closed === undefined ? 0 : CLOSED
    const taken = Math.min(length, chunk.length - peer.offset)
    this.#heap.bytes.set(chunk.subarray(peer.offset, peer.offset + taken), at)
    peer.offset += taken
    peer.held -= taken
    if (peer.offset === chunk.length) {
      peer.chunks.shift()
      peer.offset = 0
    }
    if (peer.held < HIGH_WATER && peer.socket.isPaused()) peer.socket.resume()
    return taken
  }

  wantSend(): void {
    // 'drain' always calls onReady
  }

  closeReason(index: number): string {
    return this.#peers[index]?.closed ?? ''
  }

  closePeer(index: number): void {
    this.#peers[index]?.socket.end()
  }

  close(): void {
    for (const peer of this.#peers) peer?.socket.destroySoon()
  }

  #adopt(channel: SocketChannel): Peer {
    const { socket } = channel
    const { chunks, ended } = channel.release()
    const held = chunks.reduce((sum, chunk) => sum + chunk.length, 0)
    const peer: Peer = { socket, chunks, offset: 0, held, closed: ended }
    socket.setKeepAlive(true, 10_000)
    socket.on('data', (chunk: Buffer) => {
      peer.chunks.push(chunk)
      peer.held += chunk.length
      if (peer.held >= HIGH_WATER) socket.pause()
      this.onReady()
    })
    socket.on('drain', () => {
      this.onReady()
    })
    const end = (reason: string): void => {
      peer.closed ??= reason
      this.onReady()
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
}
