import type { Heap } from '../../arena/heap.ts'
import { instantiateKernels } from '../../kernels/kernels.ts'
import { addressOf, POLLERR, ringBell, yieldCore } from '@tsrun/native'
import type { PollSet } from '../tcp-transport.ts'
import { CLOSED, type BlockingTransport } from '../transport.ts'
import {
  copyFrom,
  hostsOf,
  openNeighbour,
  openShared,
  reservedBytes,
  SPIN_LOOKS,
  type Neighbour,
  type Sharing,
} from './neighbours.ts'

/** Number of polls of an empty ring buffer between two checks that the peer is alive. */
const LOOKS = 4096
/** The list of words that `spin` polls: its heap offset and its capacity. */
const WATCHED_AT = 2176
const MOST_WATCHED = 240

export interface SharedMemoryOptions {
  readonly heap: Heap
  readonly rank: number
  /** The transport to the ranks of other hosts. */
  readonly tcp: BlockingTransport
  readonly polls: PollSet
  readonly sharing: Sharing
  /** Whether each rank of this host has a spare core for waiting. */
  readonly spins: boolean
}

/**
 * Uses ring buffers in shared memory within this host, and tcp to other hosts.
 *
 * Ranks of one host have no connection. A rank wakes a neighbour by ringing its bell, and an error
 * of the bell means that the neighbour's process is gone. A rank can thus sleep in one `poll` for
 * all of its peers.
 */
export function sharedMemoryTransport(options: SharedMemoryOptions): BlockingTransport {
  const { heap, rank, tcp, polls, sharing, spins } = options
  const peers = sharing.neighbours[rank]!
  const isPeer = new Set(peers)
  const kernels = instantiateKernels(heap.memory)
  /** The ranks of this host, indexed by rank; undefined for other ranks. */
  const neighbours = sharing.neighbours.map((_, peer) =>
    isPeer.has(peer) ? openNeighbour(heap, sharing, [rank, peer], kernels.copy) : undefined,
  )
  for (const peer of peers) polls.watch(peer, neighbours[peer]!.bell, 0)
  const base = addressOf(heap.bytes)
  const { slots, mail } = openShared(heap, kernels, rank, sharing, spins)
  /** The reason why each lost neighbour is gone. Data left in its ring buffer is still read. */
  const ended = new Map<number, string>()
  const wanted = new Set<number>()
  const looks = neighbours.map(() => 0)

  /** Lists the words that change when a neighbour sends to this rank, and returns how many. */
  const watch = (): number => {
    const words = peers.flatMap((peer) => {
      const published = slots.publishedAt(peer)
      const words = [neighbours[peer]!.reader.writtenAt, mail[peer]!.incoming.writtenAt]
      return published === undefined ? words : [...words, published]
    })
    if (words.length > MOST_WATCHED) return 0
    for (const [i, word] of words.entries()) heap.unsigned.set([word, 0], WATCHED_AT / 4 + 2 * i)
    return words.length
  }
  // Spin only if all peers are on this host, because only system calls notice data from other hosts.
  const isAlone = peers.length === sharing.neighbours.length - 1
  /** Number of words that `spin` polls. 0 if spinning would delay other work. */
  const watched = spins && isAlone ? watch() : 0

  const announceSleep = (sleeps: boolean): void => {
    slots.announceSleep(sleeps)
    for (const peer of peers) {
      const { reader, writer } = neighbours[peer]!
      reader.announceSleep(sleeps)
      if (wanted.has(peer)) writer.announceSleep(sleeps)
    }
  }

  const hasEnded = (peer: number, { reader }: Neighbour): boolean => {
    if (ended.has(peer)) return true
    if (!reader.hasEnded) return false
    end(peer, 'it closed the connection')
    return true
  }

  /** Handles the poll(2) events of a neighbour's bell: an error means that its process has ended. */
  const lookAfter = (peer: number, events: number): void => {
    if ((events & POLLERR) !== 0) end(peer, 'its process ended')
  }

  const end = (peer: number, reason: string): void => {
    if (ended.has(peer)) return
    const isOrderly = neighbours[peer]!.reader.hasEnded
    ended.set(peer, isOrderly ? 'it closed the connection' : reason)
    polls.forget(peer)
  }

  const transport: BlockingTransport = {
    name: 'shared-memory',
    reservedBytes: reservedBytes(peers.length),
    hosts: hostsOf(sharing),
    slots,
    heaps: neighbours.map((neighbour) => neighbour?.heap),
    place: tcp.place,
    doorbell: tcp.doorbell,
    sharesMemory: (peer) => neighbours[peer] !== undefined,
    mail: (peer) => mail[peer],
    get(peer, at, from, bytes) {
      copyFrom(neighbours[peer]!.heap, from, base + at, bytes)
    },
    trySend(peer, at, length, more) {
      const neighbour = neighbours[peer]
      if (neighbour === undefined) return tcp.trySend(peer, at, length, more)
      if (hasEnded(peer, neighbour)) return CLOSED
      const taken = neighbour.writer.write(at, length)
      if (neighbour.writer.shouldWake()) ringBell(neighbour.bell)
      return taken
    },
    tryReceive(peer, at, length) {
      const neighbour = neighbours[peer]
      if (neighbour === undefined) return tcp.tryReceive(peer, at, length)
      const isEnded = hasEnded(peer, neighbour)
      const taken = neighbour.reader.read(at, length)
      if (taken > 0) {
        if (neighbour.reader.shouldWake()) ringBell(neighbour.bell)
        return taken
      }
      if (isEnded) return CLOSED
      if (++looks[peer]! % LOOKS === 0) lookAfter(peer, polls.look(peer))
      return 0
    },
    wantSend(peer, isWanted) {
      if (neighbours[peer] === undefined) tcp.wantSend?.(peer, isWanted)
      else if (isWanted) wanted.add(peer)
      else wanted.delete(peer)
    },
    closeReason: (peer) => ended.get(peer) ?? tcp.closeReason(peer),
    closePeer(peer) {
      const neighbour = neighbours[peer]
      if (neighbour === undefined) {
        tcp.closePeer(peer)
        return
      }
      const { reader, writer, bell } = neighbour
      writer.end()
      // The peer may sleep until it can read, or until it can write.
      if ([writer.shouldWake(), reader.shouldWake()].includes(true)) ringBell(bell)
      end(peer, 'this rank closed the connection')
    },
    close() {
      for (const peer of peers) transport.closePeer(peer)
      tcp.close()
      for (const neighbour of neighbours) neighbour?.release()
    },
    sleep(milliseconds) {
      announceSleep(true)
      // Poll once more: a rank that wrote before the announcement did not see that this rank sleeps.
      const hasNews = slots.hasNews()
      const hasWork = peers.some((peer) => {
        const { reader, writer } = neighbours[peer]!
        if (ended.has(peer)) return !reader.isEmpty
        const { incoming } = mail[peer]!
        const hasMail = incoming.isWanted && incoming.oldest() !== undefined
        const hasSpace = wanted.has(peer) && !writer.isFull
        return !reader.isEmpty || reader.hasEnded || hasMail || hasSpace
      })
      if (!hasNews && !hasWork) {
        polls.sleep(milliseconds)
        for (const peer of peers) lookAfter(peer, polls.seen(peer))
      }
      announceSleep(false)
    },
    yield: yieldCore,
    // Do not spin while waiting for space in a ring buffer, because none of the polled words reports
    // it.
    spin: () =>
      watched > 0 &&
      wanted.size === 0 &&
      kernels.awaitChange(WATCHED_AT, watched, SPIN_LOOKS) !== 0,
  }
  return transport
}
