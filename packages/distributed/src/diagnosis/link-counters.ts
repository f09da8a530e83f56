import { LINK_NUMBERS, linkNumber } from '../record/status-slot.ts'
import { sharedBuffer } from '../arena/heap.ts'
import type { Link } from '../engine/messages/link.ts'

/** The traffic of the link to one peer. */
export interface LinkStatistics {
  /** Rank of the peer in the group. */
  readonly peer: number
  /** Rank of the peer in the world. */
  readonly worldRank: number
  readonly transport: string
  /** Bytes of payloads and frame headers, including payloads that the peer copied from shared memory. */
  readonly bytesSent: number
  readonly bytesReceived: number
  readonly framesSent: number
}

/** The counters of all links, in memory shared by the calling thread and the engine's thread. */
export class LinkCounters {
  readonly memory: Float64Array<SharedArrayBuffer>

  /** @param memory - shared memory of the counters; default: new memory */
  constructor(
    worldSize: number,
    memory = new Float64Array(sharedBuffer(worldSize * LINK_NUMBERS * 8)),
  ) {
    this.memory = memory
  }

  /** Publishes the counters. Called on the engine's thread, which owns the links. */
  publish(links: readonly (Link | undefined)[]): void {
    for (let peer = 0; peer < links.length; peer++) {
      const link = links[peer]
      if (link === undefined) continue
      const at = peer * LINK_NUMBERS
      const { traffic, mail } = link
      const [frames = 0, bytes = 0] = mail?.outgoing.traffic ?? []
      this.memory[at + linkNumber.bytesSent] = traffic.bytesSent + bytes
      this.memory[at + linkNumber.bytesReceived] =
        traffic.bytesReceived + (mail?.incoming.traffic[1] ?? 0)
      this.memory[at + linkNumber.framesSent] = traffic.framesSent + frames
      this.memory[at + linkNumber.sharesMemory] = link.sharesMemory ? 1 : 0
    }
  }

  /** @param transport - name of the transport of links that share no memory */
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
