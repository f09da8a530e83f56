import type { Heap } from '../../arena/heap.ts'
import type { SharedSlots, SlotHeader } from '../shared-slots.ts'

/** Groups that have slots. */
const GROUPS = 4
/** Bytes of a slot. */
const SLOT = 16 * 1024
/** Bytes before the slots; each group has a cache line of words there. */
const HEADER = 4096
const LINE = 16
/** Words of a group: its last epoch, then the headers of the two last epochs. */
const EPOCH = 0
const SLOT_HEADERS = 1
const SLOT_HEADER_WORDS = 4
/** The word behind the groups counts the epochs of all groups. */
const PUBLISHED = GROUPS * LINE

/** Bytes of a rank's slots with their header: whole pages. */
export const SLOTS_BYTES = HEADER + GROUPS * 2 * SLOT
/** Every rank reads the slots of all others: beyond this many ranks of a host, messages are faster. */
export const MOST_READERS = 16

interface MappedSlotsOptions {
  readonly heap: Heap
  readonly copy: (to: number, from: number, bytes: number) => void
  /** World rank. */
  readonly rank: number
  /** By world rank: where its slots are in this heap; undefined where they are not. */
  readonly places: readonly (number | undefined)[]
  readonly wake: (peer: number) => void
}

/** The slots of a host's ranks, mapped over windows of this heap. */
export class MappedSlots implements SharedSlots {
  readonly groups = GROUPS
  readonly slotBytes = SLOT
  readonly #options: MappedSlotsOptions
  /** By world rank. */
  readonly #words: readonly (Int32Array | undefined)[]
  readonly #peers: readonly number[]
  /** By world rank: how many publications had been seen when this rank last looked. */
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
    const { copy, rank, wake } = this.#options
    if (bytes > 0) copy(this.slotOf(rank, group, epoch), at, bytes)
    const words = this.#words[rank]!
    const { sequence, fingerprint } = header
    const place = placeOfHeader(group, epoch)
    words[place] = sequence
    words[place + 1] = fingerprint.kind
    words[place + 2] = fingerprint.root
    words[place + 3] = fingerprint.count
    Atomics.store(words, group * LINE + EPOCH, epoch)
    Atomics.store(words, PUBLISHED, (words[PUBLISHED]! + 1) | 0)
    for (const peer of this.#peers) wake(peer)
  }

  epochOf(peer: number, group: number): number {
    return Atomics.load(this.#words[peer]!, group * LINE + EPOCH)
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

  /** Whether any rank has published something since the last time this was asked. */
  hasNews(): boolean {
    let news = false
    for (const peer of this.#peers) {
      const published = Atomics.load(this.#words[peer]!, PUBLISHED)
      if (published !== this.#seen[peer]) news = true
      this.#seen[peer] = published
    }
    return news
  }
}

function placeOfHeader(group: number, epoch: number): number {
  return group * LINE + SLOT_HEADERS + (epoch & 1) * SLOT_HEADER_WORDS
}
