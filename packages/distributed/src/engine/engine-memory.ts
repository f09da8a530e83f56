import { tsrError } from '@tsrun/core'
import { Allocator } from '../arena/allocator.ts'
import type { Heap } from '../arena/heap.ts'
import { HEADER_BYTES } from './frame.ts'

/** Largest payload in bytes that travels eagerly, in one block with its header. */
export const EAGER_LIMIT = 16 * 1024

const HEADER_BLOCK = 64
const EAGER_BLOCK = HEADER_BYTES + EAGER_LIMIT

/** The engine's part of the heap: blocks for frames, and scratch for algorithms. */
export class EngineMemory {
  readonly heap: Heap
  /** Copies bytes within the heap; the ranges may overlap. */
  readonly copy: (to: number, from: number, bytes: number) => void
  readonly #rank: number
  readonly #allocator: Allocator
  readonly #headerBlocks: number[] = []
  readonly #eagerBlocks: number[] = []

  constructor(heap: Heap, rank: number, copy: EngineMemory['copy']) {
    this.heap = heap
    this.copy = copy
    this.#allocator = new Allocator(HEADER_BLOCK, heap.engineBytes)
    this.#rank = rank
  }

  get used(): number {
    return this.#allocator.used
  }

  /** @throws ERR_TSR_ARENA_EXHAUSTED */
  allocate(bytes: number): number {
    const at = this.#allocator.allocate(bytes)
    if (at < 0) {
      const { used, capacity } = this.#allocator
      throw tsrError('ERR_TSR_ARENA_EXHAUSTED', { rank: this.#rank, bytes, used, capacity })
    }
    return at
  }

  release(at: number): void {
    this.#allocator.release(at)
  }

  /** A block for a header and `payload` bytes (at most EAGER_LIMIT); freed blocks are reused. */
  takeFrameBlock(payload: number): number {
    const isSmall = payload <= HEADER_BLOCK - HEADER_BYTES
    const pool = isSmall ? this.#headerBlocks : this.#eagerBlocks
    return pool.pop() ?? this.allocate(isSmall ? HEADER_BLOCK : EAGER_BLOCK)
  }

  giveFrameBlock(at: number, payload: number): void {
    const isSmall = payload <= HEADER_BLOCK - HEADER_BYTES
    ;(isSmall ? this.#headerBlocks : this.#eagerBlocks).push(at)
  }
}
