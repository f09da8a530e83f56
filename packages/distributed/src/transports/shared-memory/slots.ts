import type { Heap } from '../../arena/heap.ts'
import type { SharedKernels } from '../../kernels/kernels.ts'
import type { SharedSlots, SlotEntry, SlotHeader } from '../transport.ts'

/** Number of groups with slots: the world and a mesh of eight ranks with three axes. */
const GROUPS = 13
/** Bytes of a slot. */
export const SLOT = 16 * 1024
/** Number of groups that can expose buffers. Each such group has two cache lines in the header. */
export const EXPOSING_GROUPS = 31
/** Size in bytes of the header before the slots. */
const HEADER = 4096
const LINE = 16
const GROUP_WORDS = 2 * LINE
const GROUP_BYTES = 4 * GROUP_WORDS
/**
 * Index of each word of a group. The first cache line has the group's last epoch and the headers of the
 * last two epochs, as the kernels `publish` and `awaitHeader` use them. The second has the group's steps
 * and the last withdrawn epoch.
 */
const SLOT_HEADERS = 1
/** Number of words of a header: sequence, fingerprint, and offset of the exposed buffer. */
const SLOT_HEADER_WORDS = 5
const EXPOSED = 4
const STEPS = LINE
/** The last epoch whose buffer was withdrawn. */
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
  readonly kernels: SharedKernels
  /** World rank of this process. */
  readonly rank: number
  /** Offset in this heap of the slots of each world rank; undefined if they are not mapped here. */
  readonly places: readonly (number | undefined)[]
  /** Wakes a rank that sleeps. */
  readonly wake: (peer: number) => void
  /** Number of polls of a method that may spin briefly. */
  readonly looks: number
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
  readonly #rank: number
  readonly #places: MappedSlotsOptions['places']
  readonly #kernels: SharedKernels
  readonly #wake: MappedSlotsOptions['wake']
  readonly #looks: number
  /** Views of the header words, indexed by world rank. */
  readonly #words: readonly (Int32Array | undefined)[]
  readonly #peers: readonly number[]
  /** Number of publications of each world rank at the last call of `hasNews`. */
  readonly #seen: Int32Array

  constructor({ heap, rank, places, kernels, wake, looks }: MappedSlotsOptions) {
    this.#rank = rank
    this.#places = places
    this.#kernels = kernels
    this.#wake = wake
    this.#looks = looks
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
    if (bytes > 0) this.#kernels.copy(this.slotOf(this.#rank, group, epoch), at, bytes)
    this.expose(group, epoch, header, at)
  }

  expose(group: number, epoch: number, header: SlotHeader, at: number): void {
    const own = this.#places[this.#rank]!
    const { sequence, fingerprint } = header
    const { kind, root, count } = fingerprint
    const [line, published] = [own + group * GROUP_BYTES, own + 4 * PUBLISHED]
    this.#kernels.publish(line, published, epoch, sequence, kind, root, count, at)
    this.#wakeReaders()
  }

  hasCompleted(peer: number, group: number, steps: number, spins: boolean): boolean {
    const word = this.#places[peer]! + group * GROUP_BYTES + 4 * STEPS
    return this.#kernels.awaitCount(word, steps, spins ? this.#looks : 1) !== 0
  }

  entryOf(
    peer: number,
    group: number,
    epoch: number,
    header: SlotHeader,
    spins: boolean,
  ): SlotEntry {
    const line = this.#places[peer]! + group * GROUP_BYTES
    const looks = spins ? this.#looks : 1
    const { sequence, fingerprint } = header
    const { kind, root, count } = fingerprint
    return this.#kernels.awaitHeader(line, looks, epoch, sequence, kind, root, count) as SlotEntry
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
    return this.#places[peer]! + HEADER + (2 * group + (epoch & 1)) * SLOT
  }

  exposedAt(peer: number, group: number, epoch: number): number {
    return this.#words[peer]![placeOfHeader(group, epoch) + EXPOSED]! >>> 0
  }

  advance(group: number, steps: number): void {
    const words = this.#words[this.#rank]!
    Atomics.store(words, group * GROUP_WORDS + STEPS, steps)
    Atomics.add(words, PUBLISHED, 1)
    this.#wakeReaders()
  }

  withdraw(group: number, epoch: number): void {
    Atomics.store(this.#words[this.#rank]!, group * GROUP_WORDS + WITHDRAWN, epoch)
  }

  hasWithdrawn(peer: number, group: number, epoch: number): boolean {
    return Atomics.load(this.#words[peer]!, group * GROUP_WORDS + WITHDRAWN) === epoch
  }

  /** Returns the heap offset of a word that changes with each publication of a peer. */
  publishedAt(peer: number): number | undefined {
    const at = this.#places[peer]
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
    const words = this.#words[this.#rank]
    // This host has too many ranks for slots.
    if (words === undefined) return
    Atomics.store(words, SLEEPS, sleeps && this.isAwaited ? 1 : 0)
  }

  /** Wakes the sleeping readers. If several ranks publish at once, only one of them wakes each reader. */
  #wakeReaders(): void {
    for (const peer of this.#peers) {
      if (this.#kernels.takeFlag(this.#places[peer]! + 4 * SLEEPS) !== 0) this.#wake(peer)
    }
  }
}

function placeOfHeader(group: number, epoch: number): number {
  return group * GROUP_WORDS + SLOT_HEADERS + (epoch & 1) * SLOT_HEADER_WORDS
}
