import type { Heap } from '../../arena/heap.ts'
import { instantiateKernels, type Kernels } from '../../kernels/kernels.ts'
import { addressOf, POLLERR, ringBell } from '@tsrun/native'
import type { Mail } from '../mailbox.ts'
import type { PollSet } from '../poll-set.ts'
import type { TcpTransport } from '../tcp-transport.ts'
import { CLOSED, type BlockingTransport, type LocalPlace, type MappedHeap } from '../transport.ts'
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
import type { MappedSlots } from './slots.ts'

/** Number of polls of an empty ring buffer between two checks that the peer is alive. */
const LOOKS = 4096
/** Heap offset of the list of words that `spin` polls, and its capacity. */
const WATCHED_AT = 2176
const MOST_WATCHED = 240

export interface SharedMemoryOptions {
  readonly heap: Heap
  readonly rank: number
  /** The transport to the ranks of other hosts. */
  readonly tcp: TcpTransport
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
export class SharedMemoryTransport implements BlockingTransport {
  readonly name = 'shared-memory'
  readonly reservedBytes: number
  readonly hosts: readonly number[]
  readonly slots: MappedSlots
  readonly #mail: readonly (Mail | undefined)[]
  readonly heaps: readonly (MappedHeap | undefined)[]
  readonly #base: number
  readonly #tcp: TcpTransport
  readonly #polls: PollSet
  /** The ranks of this host, indexed by rank; undefined for other ranks. */
  readonly #neighbours: readonly (Neighbour | undefined)[]
  readonly #peers: readonly number[]
  /** Why neighbours are gone, by rank. Data that is left in their ring buffers is still read. */
  readonly #ended = new Map<number, string>()
  readonly #wanted = new Set<number>()
  readonly #looks: number[]
  readonly #kernels: Kernels
  /** Number of words that `spin` polls. 0 if spinning would delay other work. */
  readonly #watched: number

  constructor({ heap, rank, tcp, polls, sharing, spins }: SharedMemoryOptions) {
    this.#tcp = tcp
    this.#polls = polls
    this.hosts = hostsOf(sharing)
    this.#peers = sharing.neighbours[rank]!
    this.reservedBytes = reservedBytes(this.#peers.length)
    const kernels = instantiateKernels(heap.memory)
    this.#kernels = kernels
    const isPeer = new Set(this.#peers)
    this.#neighbours = sharing.neighbours.map((_, peer) =>
      isPeer.has(peer) ? openNeighbour(heap, sharing, [rank, peer], kernels.copy) : undefined,
    )
    for (const peer of this.#peers) polls.watch(peer, this.#neighbours[peer]!.bell, 0)
    this.#base = addressOf(heap.bytes)
    this.heaps = this.#neighbours.map((neighbour) => neighbour?.heap)
    const { slots, mail } = openShared(heap, kernels, rank, sharing, spins)
    this.slots = slots
    this.#mail = mail
    this.#looks = this.#neighbours.map(() => 0)
    // Spin only if all peers are on this host, because only system calls notice data from other
    // hosts.
    const isAlone = this.#peers.length === sharing.neighbours.length - 1
    this.#watched = spins && isAlone ? this.#watch(heap) : 0
  }

  get place(): LocalPlace | undefined {
    return this.#tcp.place
  }

  get doorbell(): number {
    return this.#tcp.doorbell
  }

  sharesMemory(peer: number): boolean {
    return this.#neighbours[peer] !== undefined
  }

  mail(peer: number): Mail | undefined {
    return this.#mail[peer]
  }

  get(peer: number, at: number, from: number, bytes: number): void {
    copyFrom(this.#neighbours[peer]!.heap, from, this.#base + at, bytes)
  }

  trySend(peer: number, at: number, length: number, more: boolean): number {
    const neighbour = this.#neighbours[peer]
    if (neighbour === undefined) return this.#tcp.trySend(peer, at, length, more)
    if (this.#hasEnded(peer, neighbour)) return CLOSED
    const taken = neighbour.writer.write(at, length)
    if (neighbour.writer.shouldWake()) ringBell(neighbour.bell)
    return taken
  }

  tryReceive(peer: number, at: number, length: number): number {
    const neighbour = this.#neighbours[peer]
    if (neighbour === undefined) return this.#tcp.tryReceive(peer, at, length)
    const hasEnded = this.#hasEnded(peer, neighbour)
    const taken = neighbour.reader.read(at, length)
    if (taken > 0) {
      if (neighbour.reader.shouldWake()) ringBell(neighbour.bell)
      return taken
    }
    if (hasEnded) return CLOSED
    if (++this.#looks[peer]! % LOOKS === 0) this.#lookAfter(peer, this.#polls.look(peer))
    return 0
  }

  wantSend(peer: number, wanted: boolean): void {
    if (this.#neighbours[peer] === undefined) this.#tcp.wantSend(peer, wanted)
    else if (wanted) this.#wanted.add(peer)
    else this.#wanted.delete(peer)
  }

  closeReason(peer: number): string {
    return this.#ended.get(peer) ?? this.#tcp.closeReason(peer)
  }

  closePeer(peer: number): void {
    const neighbour = this.#neighbours[peer]
    if (neighbour === undefined) {
      this.#tcp.closePeer(peer)
      return
    }
    const { reader, writer, bell } = neighbour
    writer.end()
    // The peer may sleep as a reader or as a writer.
    if ([writer.shouldWake(), reader.shouldWake()].includes(true)) ringBell(bell)
    this.#end(peer, 'this rank closed the connection')
  }

  close(): void {
    for (const peer of this.#peers) this.closePeer(peer)
    this.#tcp.close()
    for (const neighbour of this.#neighbours) neighbour?.release()
  }

  sleep(milliseconds: number): void {
    this.#announceSleep(true)
    // Poll once more: a rank that wrote before the announcement did not see that this rank sleeps.
    const hasNews = this.slots.hasNews()
    const hasWork = this.#peers.some((peer) => {
      const { reader, writer } = this.#neighbours[peer]!
      if (this.#ended.has(peer)) return !reader.isEmpty
      const { incoming } = this.#mail[peer]!
      const hasMail = incoming.isWanted && incoming.oldest() !== undefined
      const hasSpace = this.#wanted.has(peer) && !writer.isFull
      return !reader.isEmpty || reader.hasEnded || hasMail || hasSpace
    })
    if (!hasNews && !hasWork) {
      this.#polls.sleep(milliseconds)
      for (const peer of this.#peers) this.#lookAfter(peer, this.#polls.seen(peer))
    }
    this.#announceSleep(false)
  }

  yield(): void {
    this.#tcp.yield()
  }

  spin(): boolean {
    // Do not spin while waiting for space in a ring buffer, because none of the polled words
    // reports it.
    if (this.#watched === 0 || this.#wanted.size > 0) return false
    return this.#kernels.awaitChange(WATCHED_AT, this.#watched, SPIN_LOOKS)
  }

  /** Lists the words that change when a neighbour sends to this rank, and returns how many. */
  #watch({ unsigned }: Heap): number {
    const words = this.#peers.flatMap((peer) => {
      const published = this.slots.publishedAt(peer)
      const words = [this.#neighbours[peer]!.reader.writtenAt, this.#mail[peer]!.incoming.writtenAt]
      return published === undefined ? words : [...words, published]
    })
    if (words.length > MOST_WATCHED) return 0
    for (const [i, word] of words.entries()) unsigned.set([word, 0], WATCHED_AT / 4 + 2 * i)
    return words.length
  }

  #announceSleep(sleeps: boolean): void {
    this.slots.announceSleep(sleeps)
    for (const peer of this.#peers) {
      const { reader, writer } = this.#neighbours[peer]!
      reader.announceSleep(sleeps)
      if (this.#wanted.has(peer)) writer.announceSleep(sleeps)
    }
  }

  #hasEnded(peer: number, { reader }: Neighbour): boolean {
    if (this.#ended.has(peer)) return true
    if (!reader.hasEnded) return false
    this.#end(peer, 'it closed the connection')
    return true
  }

  /**
   * Handles the events of a neighbour's bell.
   * @param events - poll(2) events
   */
  #lookAfter(peer: number, events: number): void {
    if ((events & POLLERR) !== 0) this.#end(peer, 'its process ended')
  }

  #end(peer: number, reason: string): void {
    if (this.#ended.has(peer)) return
    const isOrderly = this.#neighbours[peer]!.reader.hasEnded
    this.#ended.set(peer, isOrderly ? 'it closed the connection' : reason)
    this.#polls.forget(peer)
  }
}
