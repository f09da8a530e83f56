import type { Heap } from '../../arena/heap.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import type { SharedSlots, SlotHeader } from '../transport.ts'

/**
 * Number of groups with slots. It suffices for the world and the groups of a mesh of eight ranks
 * with three axes.
 */
const GROUPS = 13
/** Bytes of a slot. */
export const SLOT = 16 * 1024
/** Number of groups that can expose buffers. Each such group has two cache lines in the header. */
export const EXPOSING_GROUPS = 31
/** Size in bytes of the header before the slots. */
const HEADER = 4096
const LINE = 16
const GROUP_WORDS = 2 * LINE
/**
 * Index of each word of a group. The first cache line has the group's last epoch and the headers of
 * the last two epochs. The second has its steps and the last withdrawn epoch.
 */
const EPOCH = 0
const SLOT_HEADERS = 1
/** Number of words of a header: sequence, fingerprint, and offset of the exposed buffer. */
const SLOT_HEADER_WORDS = 5
const EXPOSED = 4
const STEPS = LINE
/** The last epoch of which the buffer was withdrawn. */
const WITHDRAWN = LINE + 1
/** Index of the word that counts the publications of all groups. */
const PUBLISHED = EXPOSING_GROUPS * GROUP_WORDS
/** Index of a word that is 1 while the rank sleeps and waits for publications. */
const SLEEPS = PUBLISHED + LINE

/** Size in bytes of a rank's slots with their header, in whole pages. */
export const SLOTS_BYTES = HEADER + GROUPS * 2 * SLOT
/**
 * Largest number of ranks of a host that use slots. Every rank reads the slots of all others, so
 * with more ranks, messages are faster.
 */
export const MOST_READERS = 16

interface MappedSlotsOptions {
  readonly heap: Heap
  readonly copy: Kernels['copy']
  /** World rank of this process. */
  readonly rank: number
  /** Offset in this heap of the slots of each world rank; undefined if they are not mapped here. */
  readonly places: readonly (number | undefined)[]
  /** Wakes a rank that sleeps. */
  readonly wake: (peer: number) => void
  /**
   * Whether a counter modulo 2^32, at offset `word`, has reached `count`. The function may spin
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
  /** Views of the header words, indexed by world rank. */
  readonly #words: readonly (Int32Array | undefined)[]
  readonly #peers: readonly number[]
  /** Number of publications of each world rank at the last call of `hasNews`. */
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

  /** Returns the heap offset of a word that changes with each publication of a peer. */
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

  /**
   * Announces that this rank is about to sleep, or has woken. After announcing sleep, the caller
   * must check `hasNews`.
   */
  announceSleep(sleeps: boolean): void {
    const words = this.#words[this.#options.rank]
    // This host has too many ranks for slots.
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
      // Of several ranks that publish at the same time, only one rings the bell.
      const sleeps = Atomics.load(theirs, SLEEPS) === 1
      if (sleeps && Atomics.exchange(theirs, SLEEPS, 0) === 1) this.#options.wake(peer)
    }
  }
}

function placeOfHeader(group: number, epoch: number): number {
  return group * GROUP_WORDS + SLOT_HEADERS + (epoch & 1) * SLOT_HEADER_WORDS
}
