import type { Heap } from '../../arena/heap.ts'
import { instantiateKernels, type Kernels } from '../../kernels/kernels.ts'
import type { TcpTransport } from '../tcp-transport.ts'
import { CLOSED, type BlockingTransport, type LocalPlace } from '../transport.ts'
import {
  hostsOf,
  openNeighbour,
  reservedBytes,
  slotPlaces,
  type Neighbour,
  type Sharing,
} from './neighbours.ts'
import { MappedSlots } from './slots.ts'

/** Looks at an empty ring buffer between two looks at whether its peer is still there. */
const LOOKS = 4096
/** Where the words are listed that `spin` looks at, and how many there is room for. */
const WATCHED_AT = 2176
const MOST_WATCHED = 240
/** Looks at each word before a core is given away: 10 us for one word, 50 us for two. */
const SPIN_LOOKS = 8000
/** Bytes of wake-ups that are discarded at once. */
const WAKE_UPS = 64

/**
 * Streams to the ranks of this host go through ring buffers in shared memory, those to others through
 * tcp.
 *
 * The connection to a neighbour carries no data: a byte on it wakes a sleeping peer, and its end says
 * that the peer has left or was lost. So a rank sleeps in one `poll` for all of its peers.
 */
export class SharedMemoryTransport implements BlockingTransport {
  readonly name = 'shared-memory'
  readonly reservedBytes: number
  readonly hosts: readonly number[]
  readonly slots: MappedSlots
  readonly #tcp: TcpTransport
  /** By rank. */
  readonly #neighbours: readonly (Neighbour | undefined)[]
  readonly #peers: readonly number[]
  /** Neighbours whose connection has ended. What is in their ring buffer still counts. */
  readonly #ended = new Set<number>()
  readonly #wanted = new Set<number>()
  readonly #looks: number[]
  /** A byte to send, and room for those that come, in the page before the ring buffers. */
  readonly #byteAt = 2048
  readonly #wakeUpsAt = 2112
  readonly #kernels: Kernels
  /** Words that `spin` looks at; 0 where it must not hold up anything else. */
  readonly #watched: number

  /** @param spins - whether each rank of this host has a core of its own to wait on */
  constructor(heap: Heap, rank: number, tcp: TcpTransport, sharing: Sharing, spins: boolean) {
    this.#tcp = tcp
    this.hosts = hostsOf(sharing)
    this.#peers = sharing.neighbours[rank]!
    this.reservedBytes = reservedBytes(this.#peers.length)
    const kernels = instantiateKernels(heap.memory)
    this.#kernels = kernels
    const copy = (to: number, from: number, bytes: number): void => {
      kernels.copy(to, from, bytes)
    }
    this.#neighbours = sharing.neighbours.map((_, peer) =>
      this.#peers.includes(peer) ? openNeighbour(heap, sharing, [rank, peer], copy) : undefined,
    )
    this.slots = new MappedSlots({
      heap,
      copy,
      get: (peer, at, from, bytes) => {
        this.get(peer, at, from, bytes)
      },
      rank,
      places: slotPlaces(sharing, rank),
      hasCome: (word, count) => kernels.awaitCount(word, count, spins ? SPIN_LOOKS : 1),
      wake: (peer) => {
        if (this.#neighbours[peer]?.writer.shouldWake() === true) this.#wake(peer)
      },
    })
    this.#looks = this.#neighbours.map(() => 0)
    // what comes from other hosts is noticed by system calls only
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

  get(peer: number, at: number, from: number, bytes: number): void {
    this.#neighbours[peer]!.get(at, from, bytes)
  }

  trySend(peer: number, at: number, length: number, more: boolean): number {
    const neighbour = this.#neighbours[peer]
    if (neighbour === undefined) return this.#tcp.trySend(peer, at, length, more)
    if (this.#ended.has(peer)) return CLOSED
    const taken = neighbour.writer.write(at, length)
    if (neighbour.writer.shouldWake()) this.#wake(peer)
    return taken
  }

  tryReceive(peer: number, at: number, length: number): number {
    const neighbour = this.#neighbours[peer]
    if (neighbour === undefined) return this.#tcp.tryReceive(peer, at, length)
    const hasEnded = this.#ended.has(peer)
    const taken = neighbour.reader.read(at, length)
    if (taken > 0) {
      if (neighbour.reader.shouldWake()) this.#wake(peer)
      return taken
    }
    if (hasEnded) return CLOSED
    if (++this.#looks[peer]! % LOOKS === 0) this.#drain(peer)
    return 0
  }

  wantSend(peer: number, wanted: boolean): void {
    if (this.#neighbours[peer] === undefined) this.#tcp.wantSend(peer, wanted)
    else if (wanted) this.#wanted.add(peer)
    else this.#wanted.delete(peer)
  }

  closeReason(peer: number): string {
    return this.#tcp.closeReason(peer)
  }

  closePeer(peer: number): void {
    this.#tcp.closePeer(peer)
    if (this.#neighbours[peer] !== undefined) this.#ended.add(peer)
  }

  close(): void {
    this.#tcp.close()
    for (const neighbour of this.#neighbours) neighbour?.unmap()
  }

  sleep(milliseconds: number): void {
    this.#announceSleep(true)
    // A rank that wrote earlier has seen nobody asleep, so look once more.
    const hasNews = this.slots.hasNews()
    const hasWork = this.#peers.some((peer) => {
      const { reader, writer } = this.#neighbours[peer]!
      return !reader.isEmpty || (this.#wanted.has(peer) && !writer.isFull)
    })
    if (!hasNews && !hasWork) {
      this.#tcp.sleep(milliseconds)
      for (const peer of this.#peers) if (this.#tcp.isReadable(peer)) this.#drain(peer)
    }
    this.#announceSleep(false)
  }

  yield(): void {
    this.#tcp.yield()
  }

  spin(): boolean {
    // room in a ring buffer is none of the words
    if (this.#watched === 0 || this.#wanted.size > 0) return false
    return this.#kernels.awaitChange(WATCHED_AT, this.#watched, SPIN_LOOKS)
  }

  /** Lists the words that change when a neighbour has something for this rank; returns how many. */
  #watch({ unsigned }: Heap): number {
    const words = this.#peers.flatMap((peer) => {
      const published = this.slots.publishedAt(peer)
      const { writtenAt } = this.#neighbours[peer]!.reader
      return published === undefined ? [writtenAt] : [writtenAt, published]
    })
    if (words.length > MOST_WATCHED) return 0
    for (const [i, word] of words.entries()) unsigned.set([word, 0], WATCHED_AT / 4 + 2 * i)
    return words.length
  }

  #announceSleep(sleeps: boolean): void {
    for (const peer of this.#peers) {
      const { reader, writer } = this.#neighbours[peer]!
      reader.announceSleep(sleeps)
      if (this.#wanted.has(peer)) writer.announceSleep(sleeps)
    }
  }

  /** A full connection already holds enough wake-ups. */
  #wake(peer: number): void {
    this.#tcp.trySend(peer, this.#byteAt, 1, false)
  }

  #drain(peer: number): void {
    if (this.#ended.has(peer)) return
    let taken: number
    do {
      taken = this.#tcp.tryReceive(peer, this.#wakeUpsAt, WAKE_UPS)
    } while (taken === WAKE_UPS)
    if (taken === CLOSED) this.#ended.add(peer)
  }
}
