import type { Link } from '../engine/messages/link.ts'

const field = { bytesSent: 0, bytesReceived: 1, framesSent: 2, sharesMemory: 3 } as const
const FIELDS = 4

/** What has gone over the link to one peer so far. */
export interface LinkStatistics {
  /** Rank of the group. */
  readonly peer: number
  /** Rank of the world. */
  readonly worldRank: number
  readonly transport: string
  /** Payloads and headers of frames, and what the peer copied out of shared memory. */
  readonly bytesSent: number
  readonly bytesReceived: number
  readonly framesSent: number
}

/** The counters of all links, in memory that the caller's thread and the engine's share. */
export class LinkCounters {
  readonly buffer: SharedArrayBuffer
  readonly #counters: Float64Array

  constructor(worldSize: number, buffer = new SharedArrayBuffer(worldSize * FIELDS * 8)) {
    this.buffer = buffer
    this.#counters = new Float64Array(buffer)
  }

  /** Called on the engine's thread, where the links are. */
  publish(links: readonly (Link | undefined)[]): void {
    for (let peer = 0; peer < links.length; peer++) {
      const link = links[peer]
      if (link === undefined) continue
      const at = peer * FIELDS
      const { bytesSent, bytesReceived, framesSent } = link.traffic
      this.#counters[at + field.bytesSent] = bytesSent
      this.#counters[at + field.bytesReceived] = bytesReceived
      this.#counters[at + field.framesSent] = framesSent
      this.#counters[at + field.sharesMemory] = link.sharesMemory ? 1 : 0
    }
  }

  /** @param transport - of links that share no memory */
  read(worldRank: number, peer: number, transport: string): LinkStatistics {
    const of = (name: keyof typeof field): number =>
      this.#counters[worldRank * FIELDS + field[name]]!
    return {
      peer,
      worldRank,
      transport: of('sharesMemory') === 1 ? 'shared-memory' : transport,
      bytesSent: of('bytesSent'),
      bytesReceived: of('bytesReceived'),
      framesSent: of('framesSent'),
    }
  }
}
