import type { Heap } from '../../arena/heap.ts'
import type { Kernels } from '../../kernels/kernels.ts'

/** Capacity of one direction in bytes. It holds a few eager messages with their headers. */
const CAPACITY = 64 * 1024
const HEADER = 4096
/** Size in bytes of a ring buffer with its header, in whole pages. */
export const RING_BUFFER_BYTES = HEADER + CAPACITY

/**
 * Index of each 32-bit word of the header. Each word is on a separate cache line. Counts are modulo
 * 2^32.
 */
const WRITTEN = 0
const READ = 16
const READER_SLEEPS = 32
const WRITER_SLEEPS = 48
/** 1 once the writer has ended the connection in both directions. */
const ENDED = 64

type Copy = Kernels['copy']

/** One end of a ring buffer. */
class RingBufferEnd {
  protected readonly words: Int32Array
  protected readonly data: number
  protected readonly copy: Copy
  /** Index of the word that says whether this end sleeps. */
  readonly #sleeps: number
  readonly #otherSleeps: number

  constructor(heap: Heap, at: number, copy: Copy, sleeps: number, otherSleeps: number) {
    this.words = new Int32Array(heap.bytes.buffer, at, HEADER / 4)
    this.data = at + HEADER
    this.copy = copy
    this.#sleeps = sleeps
    this.#otherSleeps = otherSleeps
  }

  /** Whether the other end sleeps and no other thread is waking it yet. */
  shouldWake(): boolean {
    const { words } = this
    const word = this.#otherSleeps
    return Atomics.load(words, word) === 1 && Atomics.exchange(words, word, 0) === 1
  }

  announceSleep(sleeps: boolean): void {
    Atomics.store(this.words, this.#sleeps, sleeps ? 1 : 0)
  }
}

export class RingBufferWriter extends RingBufferEnd {
  #written = 0

  constructor(heap: Heap, at: number, copy: Copy) {
    super(heap, at, copy, WRITER_SLEEPS, READER_SLEEPS)
  }

  get isFull(): boolean {
    return (this.#written - Atomics.load(this.words, READ)) >>> 0 === CAPACITY
  }

  /** Writes up to `length` bytes from offset `at`. Returns the number of written bytes. */
  write(at: number, length: number): number {
    const { words, data, copy } = this
    const used = (this.#written - Atomics.load(words, READ)) >>> 0
    const taken = Math.min(length, CAPACITY - used)
    if (taken === 0) return 0
    const position = this.#written & (CAPACITY - 1)
    const first = Math.min(taken, CAPACITY - position)
    copy(data + position, at, first)
    if (taken > first) copy(data, at + first, taken - first)
    this.#written = (this.#written + taken) | 0
    Atomics.store(words, WRITTEN, this.#written)
    return taken
  }

  /** Ends the connection: tells the peer that this rank neither writes nor reads any more. */
  end(): void {
    Atomics.store(this.words, ENDED, 1)
  }
}

export class RingBufferReader extends RingBufferEnd {
  /** Heap offset of a word that changes when more data is written. */
  readonly writtenAt: number
  #read = 0

  constructor(heap: Heap, at: number, copy: Copy) {
    super(heap, at, copy, READER_SLEEPS, WRITER_SLEEPS)
    this.writtenAt = at + 4 * WRITTEN
  }

  get isEmpty(): boolean {
    return Atomics.load(this.words, WRITTEN) === this.#read
  }

  /** Whether the writer has ended the connection. Earlier data can still be read. */
  get hasEnded(): boolean {
    return Atomics.load(this.words, ENDED) === 1
  }

  /** Reads up to `length` bytes to offset `at`. Returns the number of read bytes. */
  read(at: number, length: number): number {
    const { words, data, copy } = this
    const available = (Atomics.load(words, WRITTEN) - this.#read) >>> 0
    // Limit the count, because a broken writer may claim more than the capacity.
    const taken = Math.min(length, available, CAPACITY)
    if (taken === 0) return 0
    const position = this.#read & (CAPACITY - 1)
    const first = Math.min(taken, CAPACITY - position)
    copy(at, data + position, first)
    if (taken > first) copy(at + first, data, taken - first)
    this.#read = (this.#read + taken) | 0
    Atomics.store(words, READ, this.#read)
    return taken
  }
}
