import { LINK_NUMBERS, linkNumber } from '../record/status-slot.ts'
import { sharedBuffer } from '../arena/heap.ts'
import type { Link } from '../engine/messages/link.ts'

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
  readonly memory: Float64Array<SharedArrayBuffer>

  /** @param memory - default: its own; or that of the status page */
  constructor(
    worldSize: number,
    memory = new Float64Array(sharedBuffer(worldSize * LINK_NUMBERS * 8)),
  ) {
    this.memory = memory
  }

  /** Called on the engine's thread, where the links are. */
  publish(links: readonly (Link | undefined)[]): void {
    for (let peer = 0; peer < links.length; peer++) {
      const link = links[peer]
      if (link === undefined) continue
      const at = peer * LINK_NUMBERS
      const { bytesSent, bytesReceived, framesSent } = link.traffic
      this.memory[at + linkNumber.bytesSent] = bytesSent
      this.memory[at + linkNumber.bytesReceived] = bytesReceived
      this.memory[at + linkNumber.framesSent] = framesSent
      this.memory[at + linkNumber.sharesMemory] = link.sharesMemory ? 1 : 0
    }
  }

  /** @param transport - of links that share no memory */
  read(worldRank: number, peer: number, transport: string): LinkStatistics {
    const of = (name: keyof typeof linkNumber): number =>
      this.memory[worldRank * LINK_NUMBERS + linkNumber[name]]!
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
