import type { Heap } from '../../arena/heap.ts'
import type { Board } from '../board.ts'
import { CLOSED, type Transport } from '../transport.ts'
import { MemoryBoards } from './memory-board.ts'

/** Bytes under way in one direction. Small, so that tests see streams that fill up. */
const PIPE_BYTES = 64 * 1024

/** A byte stream from one rank to another, in memory. */
class Pipe {
  readonly #bytes = new Uint8Array(PIPE_BYTES)
  #read = 0
  #written = 0
  closed = false

  get isEmpty(): boolean {
    return this.#read === this.#written
  }

  write(source: Uint8Array): number {
    const length = Math.min(source.length, PIPE_BYTES - (this.#written - this.#read))
    for (let done = 0; done < length;) {
      const at = (this.#written + done) % PIPE_BYTES
      const part = Math.min(length - done, PIPE_BYTES - at)
      this.#bytes.set(source.subarray(done, done + part), at)
      done += part
    }
    this.#written += length
    return length
  }

  read(target: Uint8Array): number {
    const length = Math.min(target.length, this.#written - this.#read)
    for (let done = 0; done < length;) {
      const at = (this.#read + done) % PIPE_BYTES
      const part = Math.min(length - done, PIPE_BYTES - at)
      target.set(this.#bytes.subarray(at, at + part), done)
      done += part
    }
    this.#read += length
    return length
  }
}

/** The pipes between all ranks of an in-process world. */
export class MemoryNetwork {
  readonly #pipes: Pipe[][]
  /** By rank; see `Transport.hosts`. */
  readonly hosts: readonly number[] | undefined
  /** By rank. */
  readonly heaps: Heap[] = []
  readonly boards: MemoryBoards | undefined

  constructor(size: number, hosts?: readonly number[]) {
    this.hosts = hosts
    this.boards = hosts && new MemoryBoards(hosts, this.heaps)
    this.#pipes = Array.from({ length: size }, () => Array.from({ length: size }, () => new Pipe()))
  }

  pipe(from: number, to: number): Pipe {
    return this.#pipes[from]![to]!
  }
}

/**
 * Byte streams within one thread. `portion` says how many of the bytes that could move do so, which
 * lets a seeded world explore every way in which streams break up.
 */
export class MemoryTransport implements Transport {
  readonly name = 'memory'
  readonly reservedBytes: number
  readonly board: Board | undefined
  readonly #network: MemoryNetwork
  readonly #rank: number
  readonly #size: number
  readonly #heap: Heap
  readonly #portion: (bytes: number) => number

  constructor(
    network: MemoryNetwork,
    rank: number,
    size: number,
    heap: Heap,
    portion: (bytes: number) => number,
  ) {
    this.#network = network
    this.#rank = rank
    this.#size = size
    this.#heap = heap
    this.#portion = portion
    network.heaps[rank] = heap
    this.reservedBytes = network.boards?.end ?? 0
    this.board = network.boards?.boardOf(rank)
  }

  get hosts(): readonly number[] | undefined {
    return this.#network.hosts
  }

  sharesMemory(peer: number): boolean {
    const { hosts } = this.#network
    return hosts !== undefined && hosts[peer] === hosts[this.#rank]
  }

  pull(peer: number, at: number, from: number, bytes: number): void {
    const source = this.#network.heaps[peer]!
    this.#heap.bytes.set(source.bytes.subarray(from, from + bytes), at)
  }

  trySend(peer: number, at: number, length: number): number {
    const pipe = this.#network.pipe(this.#rank, peer)
    if (pipe.closed) return CLOSED
    return pipe.write(this.#heap.bytes.subarray(at, at + this.#portion(length)))
  }

  tryReceive(peer: number, at: number, length: number): number {
    const pipe = this.#network.pipe(peer, this.#rank)
    if (pipe.isEmpty) return pipe.closed ? CLOSED : 0
    return pipe.read(this.#heap.bytes.subarray(at, at + this.#portion(length)))
  }

  wantSend(): void {
    // the world asks every engine in turn
  }

  closeReason(): string {
    return 'its in-process transport was closed'
  }

  closePeer(peer: number): void {
    this.#network.pipe(this.#rank, peer).closed = true
    this.#network.pipe(peer, this.#rank).closed = true
  }

  close(): void {
    for (let peer = 0; peer < this.#size; peer++) {
      if (peer !== this.#rank) this.#network.pipe(this.#rank, peer).closed = true
    }
  }
}
