import type { Heap } from '../arena/heap.ts'
import { CLOSED, type EventTransport } from './transport.ts'

/** One end of a MessageChannel, in a browser or in Node. */
export interface Port {
  postMessage(message: unknown, transfer: ArrayBuffer[]): void
  addEventListener(type: 'message', listener: (event: object) => void): void
  start(): void
  close(): void
}

/** Largest number of bytes that a peer has not taken yet. */
const HIGH_WATER = 1024 * 1024

/** What goes through a port: bytes of the stream, how many of them a peer has taken, or the end. */
type PortMessage = ArrayBuffer | number | 'end'

interface Peer {
  readonly port: Port
  readonly chunks: Uint8Array[]
  /** Number of bytes already taken from the first chunk. */
  offset: number
  /** Number of sent bytes that the peer has not taken. */
  held: number
  hasEnded: boolean
}

/** Byte streams through ports, between workers that share no memory. */
export class PortTransport implements EventTransport {
  readonly name = 'port'
  onReady: () => void = () => undefined
  readonly #heap: Heap
  readonly #peers: readonly (Peer | undefined)[]

  constructor(heap: Heap, ports: readonly (Port | undefined)[]) {
    this.#heap = heap
    this.#peers = ports.map((port) => port && this.#adopt(port))
  }

  trySend(index: number, at: number, length: number): number {
    const peer = this.#peers[index]!
    if (peer.hasEnded) return CLOSED
    const taken = Math.min(length, HIGH_WATER - peer.held)
    if (taken <= 0) return 0
    const { buffer } = new Uint8Array(this.#heap.bytes.subarray(at, at + taken))
    peer.held += taken
    peer.port.postMessage(buffer, [buffer])
    return taken
  }

  tryReceive(index: number, at: number, length: number): number {
    const peer = this.#peers[index]!
    let taken = 0
    while (taken < length) {
      const [chunk] = peer.chunks
      if (chunk === undefined) break
      const part = Math.min(length - taken, chunk.length - peer.offset)
      this.#heap.bytes.set(chunk.subarray(peer.offset, peer.offset + part), at + taken)
      taken += part
      peer.offset += part
      if (peer.offset < chunk.length) break
      peer.chunks.shift()
      peer.offset = 0
    }
    if (taken === 0) return peer.hasEnded ? CLOSED : 0
    peer.port.postMessage(taken, [])
    return taken
  }

  wantSend(): void {
    // Nothing to do: what a peer has taken calls `onReady`.
  }

  closeReason(): string {
    return 'its worker has closed the port'
  }

  closePeer(index: number): void {
    this.#peers[index]?.port.postMessage('end', [])
  }

  close(): void {
    for (const peer of this.#peers) {
      peer?.port.postMessage('end', [])
      peer?.port.close()
    }
  }

  #adopt(port: Port): Peer {
    const peer: Peer = { port, chunks: [], offset: 0, held: 0, hasEnded: false }
    port.addEventListener('message', (event) => {
      const { data } = event as { readonly data: PortMessage }
      if (data === 'end') peer.hasEnded = true
      else if (typeof data === 'number') peer.held -= data
      else peer.chunks.push(new Uint8Array(data))
      this.onReady()
    })
    port.start()
    return peer
  }
}
