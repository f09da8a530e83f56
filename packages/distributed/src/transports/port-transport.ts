import type { Heap } from '../arena/heap.ts'
import { takeChunks, type Chunks } from './chunks.ts'
import { CLOSED, type EventTransport } from './transport.ts'

/** One end of a MessageChannel, in a browser or in Node. */
export interface Port {
  postMessage(message: unknown, transfer: ArrayBuffer[]): void
  addEventListener(type: 'message', listener: (event: object) => void): void
  start(): void
  close(): void
}

/** Largest number of sent bytes that a peer has not taken yet. */
const HIGH_WATER = 1024 * 1024

/** A message on a port: bytes of the stream, the number of bytes that the peer has taken, or the end. */
type PortMessage = ArrayBuffer | number | 'end'

interface Peer extends Chunks {
  readonly port: Port
  /** Number of sent bytes that the peer has not taken. */
  held: number
  hasEnded: boolean
}

/** Byte streams through ports, between workers that share no memory. */
export function portTransport(heap: Heap, ports: readonly (Port | undefined)[]): EventTransport {
  const adopt = (port: Port): Peer => {
    const peer: Peer = { port, chunks: [], offset: 0, held: 0, hasEnded: false }
    port.addEventListener('message', (event) => {
      const { data } = event as { readonly data: PortMessage }
      if (data === 'end') peer.hasEnded = true
      else if (typeof data === 'number') peer.held -= data
      else peer.chunks.push(new Uint8Array(data))
      transport.onReady()
    })
    port.start()
    return peer
  }
  const transport: EventTransport = {
    name: 'port',
    onReady: () => undefined,
    trySend: (index, at, length) => {
      const peer = peers[index]!
      if (peer.hasEnded) return CLOSED
      const taken = Math.min(length, HIGH_WATER - peer.held)
      if (taken <= 0) return 0
      const { buffer } = new Uint8Array(heap.bytes.subarray(at, at + taken))
      peer.held += taken
      peer.port.postMessage(buffer, [buffer])
      return taken
    },
    tryReceive: (index, at, length) => {
      const peer = peers[index]!
      const taken = takeChunks(peer, heap.bytes, at, length)
      if (taken === 0) return peer.hasEnded ? CLOSED : 0
      peer.port.postMessage(taken, [])
      return taken
    },
    closeReason: () => 'its worker has closed the port',
    closePeer: (index) => {
      peers[index]?.port.postMessage('end', [])
    },
    close: () => {
      for (const peer of peers) {
        peer?.port.postMessage('end', [])
        peer?.port.close()
      }
    },
  }
  const peers = ports.map((port) => port && adopt(port))
  return transport
}
