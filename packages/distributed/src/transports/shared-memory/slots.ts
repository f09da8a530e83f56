import type { Heap } from '../../arena/heap.ts'
import type { SharedSlots, SlotHeader } from '../shared-slots.ts'

/**
 * Number of groups with slots: the world, and the groups of a mesh of eight ranks with three axes.
 */
const GROUPS = 13
/** Bytes of a slot. */
export const SLOT = 16 * 1024
/** Number of groups that can expose buffers. Each has two cache lines in the header. */
export const EXPOSING_GROUPS = 31
/** Bytes before the slots. */
const HEADER = 4096
const LINE = 16
const GROUP_WORDS = 2 * LINE
/**
 * Words of a group. One cache line has its last epoch and the headers of the last two. The other
 * has its steps and the last withdrawn epoch.
 */
const EPOCH = 0
const SLOT_HEADERS = 1
/** Sequence, fingerprint, and offset of the exposed buffer. */
const SLOT_HEADER_WORDS = 5
const EXPOSED = 4
const STEPS = LINE
/** The last epoch whose buffer was withdrawn. */
const WITHDRAWN = LINE + 1
/** The word after all groups counts their publications. */
const PUBLISHED = EXPOSING_GROUPS * GROUP_WORDS
/** 1 while the rank sleeps and waits for publications. */
const SLEEPS = PUBLISHED + LINE

/** Bytes of a rank's slots with their header: whole pages. */
export const SLOTS_BYTES = HEADER + GROUPS * 2 * SLOT
/**
 * Largest number of ranks of a host that use slots. Each reads the slots of all others, so above
 * it, messages are faster.
 */
export const MOST_READERS = 16

interface MappedSlotsOptions {
  readonly heap: Heap
  readonly copy: (to: number, from: number, bytes: number) => void
  /** World rank. */
  readonly rank: number
  /** Offset in this heap of each world rank's slots; undefined if it has none here. */
  readonly places: readonly (number | undefined)[]
  /** Wakes a rank that sleeps. */
  readonly wake: (peer: number) => void
  /**
   * Whether the word at this offset, a counter modulo 2^32, has reached `count`. It may spin
   * briefly.
   */
  readonly hasCome: (word: number, count: number) => boolean
}

/**
 * The slots of a host's ranks, mapped over windows of this heap. Each thread of a rank has its own
 * object.
 */
export class MappedSlots implements SharedSlots {
  readonly groups = GROUPS
  readonly exposingGroups = EXPOSING_GROUPS
  readonly slotBytes = SLOT
  isAwaited = false
  readonly #options: MappedSlotsOptions
  /** By world rank. */
  readonly #words: readonly (Int32Array | undefined)[]
  readonly #peers: readonly number[]
  /** Publications of each world rank at the last call of `hasNews`. */
  readonly #seen: Int32Array

  constructor(options: MappedSlotsOptions) {
    const { heap, rank, places } = options
    this.#options = options
    this.#words = places.map((at) =>
      at === undefined ? undefined : new Int32Array(heap.bytes.buffer, at, HEADER / 4),
    )
    this.#peers = [...places.keys()].filter((peer) => peer !== rank && places[peer] !== undefined)
    this.#seen = new Int32Array(places.length)
  }

  reaches(peer: number): boolean {
    return this.#words[peer] !== undefined
  }

  publish(group: number, epoch: number, header: SlotHeader, at: number, bytes: number): void {
    const { copy, rank } = this.#options
    if (bytes > 0) copy(this.slotOf(rank, group, epoch), at, bytes)
    this.expose(group, epoch, header, at)
  }

  expose(group: number, epoch: number, header: SlotHeader, at: number): void {
    const words = this.#words[this.#options.rank]!
    const { sequence, fingerprint } = header
    const place = placeOfHeader(group, epoch)
    words[place] = sequence
    words[place + 1] = fingerprint.kind
    words[place + 2] = fingerprint.root
    words[place + 3] = fingerprint.count
    words[place + EXPOSED] = at
    Atomics.store(words, group * GROUP_WORDS + EPOCH, epoch)
    this.#announce(words)
  }

  hasEntered(peer: number, group: number, epoch: number, spins: boolean): boolean {
    return this.#hasCome(peer, group * GROUP_WORDS + EPOCH, epoch, spins)
  }

  hasCompleted(peer: number, group: number, steps: number, spins: boolean): boolean {
    return this.#hasCome(peer, group * GROUP_WORDS + STEPS, steps, spins)
  }

  matches(peer: number, group: number, epoch: number, header: SlotHeader): boolean {
    const words = this.#words[peer]!
    const place = placeOfHeader(group, epoch)
    const { sequence, fingerprint } = header
    return (
      words[place] === (sequence | 0) &&
      words[place + 1] === fingerprint.kind &&
      words[place + 2] === (fingerprint.root | 0) &&
      words[place + 3] === fingerprint.count
    )
  }

  headerOf(peer: number, group: number, epoch: number): SlotHeader {
    const words = this.#words[peer]!
    const place = placeOfHeader(group, epoch)
    return {
      sequence: words[place]! >>> 0,
      fingerprint: {
        kind: words[place + 1]!,
        root: words[place + 2]! >>> 0,
        count: words[place + 3]!,
      },
    }
  }

  slotOf(peer: number, group: number, epoch: number): number {
    return this.#options.places[peer]! + HEADER + (2 * group + (epoch & 1)) * SLOT
  }

  exposedAt(peer: number, group: number, epoch: number): number {
    return this.#words[peer]![placeOfHeader(group, epoch) + EXPOSED]! >>> 0
  }

  advance(group: number, steps: number): void {
    const words = this.#words[this.#options.rank]!
    Atomics.store(words, group * GROUP_WORDS + STEPS, steps)
    this.#announce(words)
  }

  withdraw(group: number, epoch: number): void {
    Atomics.store(this.#words[this.#options.rank]!, group * GROUP_WORDS + WITHDRAWN, epoch)
  }

  hasWithdrawn(peer: number, group: number, epoch: number): boolean {
    return Atomics.load(this.#words[peer]!, group * GROUP_WORDS + WITHDRAWN) === epoch
  }

  /** Returns the offset of the word that changes with each publication of a peer. */
  publishedAt(peer: number): number | undefined {
    const at = this.#options.places[peer]
    return at === undefined ? undefined : at + 4 * PUBLISHED
  }

  /** Whether any rank has published since the last call. */
  hasNews(): boolean {
    let news = false
    for (const peer of this.#peers) {
      const published = Atomics.load(this.#words[peer]!, PUBLISHED)
      if (published !== this.#seen[peer]) news = true
      this.#seen[peer] = published
    }
    return news
  }

  /** Announces that this rank is about to sleep, or has woken. Check `hasNews` after announcing. */
  announceSleep(sleeps: boolean): void {
    const words = this.#words[this.#options.rank]
    // There are no slots because this host has too many ranks.
    if (words === undefined) return
    Atomics.store(words, SLEEPS, sleeps && this.isAwaited ? 1 : 0)
  }

  #hasCome(peer: number, word: number, count: number, spins: boolean): boolean {
    const { places, hasCome } = this.#options
    if (spins) return hasCome(places[peer]! + 4 * word, count)
    return ((Atomics.load(this.#words[peer]!, word) - count) | 0) >= 0
  }

  /** Wakes the readers that sleep. */
  #announce(words: Int32Array): void {
    Atomics.add(words, PUBLISHED, 1)
    for (const peer of this.#peers) {
      const theirs = this.#words[peer]!
      // Only one of several publishing ranks rings.
      const sleeps = Atomics.load(theirs, SLEEPS) === 1
      if (sleeps && Atomics.exchange(theirs, SLEEPS, 0) === 1) this.#options.wake(peer)
    }
  }
}

function placeOfHeader(group: number, epoch: number): number {
  return group * GROUP_WORDS + SLOT_HEADERS + (epoch & 1) * SLOT_HEADER_WORDS
}
