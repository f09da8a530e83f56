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

class RingBuffer {
  readonly words: Int32Array
  readonly data: number
  readonly copy: Copy

  constructor(heap: Heap, at: number, copy: Copy) {
    this.words = new Int32Array(heap.bytes.buffer, at, HEADER / 4)
    this.data = at + HEADER
    this.copy = copy
  }
}

export class RingBufferWriter {
  readonly #buffer: RingBuffer
  #written = 0

  constructor(heap: Heap, at: number, copy: Copy) {
    this.#buffer = new RingBuffer(heap, at, copy)
  }

  get isFull(): boolean {
    const { words } = this.#buffer
    return (this.#written - Atomics.load(words, READ)) >>> 0 === CAPACITY
  }

  /** Writes up to `length` bytes from offset `at`. Returns the number of written bytes. */
  write(at: number, length: number): number {
    const { words, data, copy } = this.#buffer
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

  /** Whether the reader sleeps and no other thread is waking it yet. */
  shouldWake(): boolean {
    const { words } = this.#buffer
    return (
      Atomics.load(words, READER_SLEEPS) === 1 && Atomics.exchange(words, READER_SLEEPS, 0) === 1
    )
  }

  announceSleep(sleeps: boolean): void {
    Atomics.store(this.#buffer.words, WRITER_SLEEPS, sleeps ? 1 : 0)
  }

  /** Ends the connection: tells the peer that this rank neither writes nor reads any more. */
  end(): void {
    Atomics.store(this.#buffer.words, ENDED, 1)
  }
}

export class RingBufferReader {
  /** Heap offset of a word that changes when more data is written. */
  readonly writtenAt: number
  readonly #buffer: RingBuffer
  #read = 0

  constructor(heap: Heap, at: number, copy: Copy) {
    this.writtenAt = at + 4 * WRITTEN
    this.#buffer = new RingBuffer(heap, at, copy)
  }

  get isEmpty(): boolean {
    return Atomics.load(this.#buffer.words, WRITTEN) === this.#read
  }

  /**
   * Whether the writer has ended the connection. Data that was written before can still be read.
   */
  get hasEnded(): boolean {
    return Atomics.load(this.#buffer.words, ENDED) === 1
  }

  /** Reads up to `length` bytes to offset `at`. Returns the number of read bytes. */
  read(at: number, length: number): number {
    const { words, data, copy } = this.#buffer
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

  /** Whether the writer sleeps and no other thread is waking it yet. */
  shouldWake(): boolean {
    const { words } = this.#buffer
    return (
      Atomics.load(words, WRITER_SLEEPS) === 1 && Atomics.exchange(words, WRITER_SLEEPS, 0) === 1
    )
  }

  announceSleep(sleeps: boolean): void {
    Atomics.store(this.#buffer.words, READER_SLEEPS, sleeps ? 1 : 0)
  }
}
