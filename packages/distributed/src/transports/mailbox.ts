import type { Heap } from '../arena/heap.ts'
import type { Kernels } from '../kernels/kernels.ts'

const HEADER = 4096
/** Bytes of messages, with their headers, that fit into a mailbox. */
const CAPACITY = 32 * 1024
/** Each message has a header of one cache line, and starts at a cache line. */
const LINE = 64
/** Largest payload in bytes. */
export const LARGEST_MAIL = 16 * 1024
/** Size of a mailbox in bytes, in whole pages. The last message may extend beyond the capacity. */
export const MAILBOX_BYTES = HEADER + CAPACITY + LARGEST_MAIL

/** Index of each word of the header. Each cache line has one writer. */
const WRITTEN = 0
/** Index of two doubles: the number of frames and the number of bytes sent so far. */
const TRAFFIC = 4
const READ = 16
const WANTED = 32
const LOCK = 48
/** Index of the first counters. There is space for 128 streams. */
const COUNTERS = 64
/** Words for each stream: its group plus 1, its tag, and its counters. */
const STREAM_WORDS = 5

/** Index of each counter of a stream. */
export const counter = { sent: 2, received: 3, arrived: 4 } as const

/**
 * The small messages of one direction between two ranks that share memory, oldest first. The
 * sender's calling thread posts messages, while its engine sends the others. The receiver's calling
 * thread takes a message for which it has a receive. If the receiver's engine waits for messages of
 * the sender, the engine takes them. Each thread has an object of its own.
 */
export class Mailbox {
  /** The header, with the counters of streams, which the threads of the receiver share. */
  readonly words: Int32Array
  /** The counts for `Credit`: sent bytes at index 0, and consumed bytes at index 16. */
  readonly credit: Int32Array
  readonly traffic: Float64Array
  /** Heap offset of a word that changes with each message. */
  readonly writtenAt: number
  readonly #kernels: Kernels
  readonly #looks: number

  /** @param looks - number of polls while the calling thread waits */
  constructor(heap: Heap, at: number, kernels: Kernels, looks: number) {
    const { buffer } = heap.bytes
    this.words = new Int32Array(buffer, at, HEADER / 4)
    this.credit = this.words.subarray(WRITTEN + 1)
    this.traffic = new Float64Array(buffer, at + 4 * TRAFFIC, 2)
    this.writtenAt = at + 4 * WRITTEN
    this.#kernels = kernels
    this.#looks = looks
  }

  /** Whether the receiver's engine waits for messages, so that it must be woken. */
  get isWanted(): boolean {
    return Atomics.load(this.words, WANTED) === 1
  }

  set isWanted(isWanted: boolean) {
    if (isWanted !== this.isWanted) Atomics.store(this.words, WANTED, isWanted ? 1 : 0)
  }

  /** Returns the heap offset for the header of the next message. Undefined if there is no space. */
  reserve(bytes: number): number | undefined {
    const written = this.words[WRITTEN]!
    const used = (written - Atomics.load(this.words, READ)) >>> 0
    return used + lengthOf(bytes) > CAPACITY ? undefined : this.#placeOf(written)
  }

  /** Sends a message whose header was written. The payload is at offset `from` of the heap. */
  post(from: number, bytes: number): void {
    const written = this.words[WRITTEN]!
    this.#kernels.copy(this.#placeOf(written) + LINE, from, bytes)
    this.traffic[0]! += 1
    this.traffic[1]! += LINE + bytes
    Atomics.store(this.words, WRITTEN, (written + lengthOf(bytes)) | 0)
  }

  /** Returns the heap offset of the header of the oldest message. Undefined if there is none. */
  oldest(): number | undefined {
    const read = Atomics.load(this.words, READ)
    return Atomics.load(this.words, WRITTEN) === read ? undefined : this.#placeOf(read)
  }

  /** Waits briefly for a message if a spare core is available. */
  spin(): void {
    this.#kernels.awaitCount(this.writtenAt, (this.words[READ]! + 1) | 0, this.#looks)
  }

  /** Removes the oldest message. The caller must hold the lock. */
  take(to: number | undefined, bytes: number): void {
    const read = this.words[READ]!
    if (to !== undefined) this.#kernels.copy(to, this.#placeOf(read) + LINE, bytes)
    Atomics.store(this.words, READ, (read + lengthOf(bytes)) | 0)
  }

  /** Locks the mailbox. Returns false if the receiver's other thread holds the lock. */
  tryLock(): boolean {
    return Atomics.compareExchange(this.words, LOCK, 0, 1) === 0
  }

  unlock(): void {
    Atomics.store(this.words, LOCK, 0)
  }

  /**
   * Returns the index in `words` of the counters of a stream, or -1 if the stream has no counters.
   * The counters tell both threads of a rank the numbers of the next messages in both directions.
   *
   * @param isFirst - whether this may be the first call for the stream, which reserves the counters
   */
  find(group: number, tag: number, isFirst = false): number {
    const { words } = this
    // Fibonacci hashing: the upper 7 bits of the product are the index.
    const hash = Math.imul(tag + 31 * group, 0x9e3779b1) >>> 25
    const place = COUNTERS + hash * STREAM_WORDS
    if (isFirst && words[place] === 0) {
      words[place + 1] = tag
      Atomics.store(words, place, group + 1)
    }
    const isFound = Atomics.load(words, place) === group + 1 && words[place + 1] === (tag | 0)
    return isFound ? place : -1
  }

  #placeOf(position: number): number {
    return this.writtenAt + HEADER + (position & (CAPACITY - 1))
  }
}

/** The mailboxes from and to another rank. */
export interface Mail {
  readonly incoming: Mailbox
  readonly outgoing: Mailbox
  /** Wakes the engine of the other rank if it sleeps. */
  wake(): void
}

function lengthOf(bytes: number): number {
  return LINE + Math.ceil(bytes / LINE) * LINE
}
