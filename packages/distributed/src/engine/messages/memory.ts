import { tsrError } from '@tsrun/core'
import { Allocator } from '../../arena/allocator.ts'
import type { Heap } from '../../arena/heap.ts'
import { EAGER_LIMIT, HEADER_BYTES } from './frame.ts'

/** Smallest block of a frame. The others are twice as large each; the last holds an eager frame. */
const SMALLEST_BLOCK = 64
const LARGEST_BLOCK = HEADER_BYTES + EAGER_LIMIT
/** Part of the memory that scratch may fill. */
const SCRATCH = 0.875
/** Free blocks of one size that are kept for the next frames. */
const KEPT = 64

/** The engine's part of the heap: blocks for frames, and scratch for algorithms. */
export class EngineMemory {
  readonly heap: Heap
  /** Copies bytes within the heap; the ranges may overlap. */
  readonly copy: (to: number, from: number, bytes: number) => void
  readonly #rank: number
  readonly #allocator: Allocator
  /** Free frame blocks by the size of their class. */
  readonly #blocks: number[][] = []

  /** @param reserved - bytes at the low end that are not the engine's */
  constructor(heap: Heap, rank: number, copy: EngineMemory['copy'], reserved = 0) {
    this.heap = heap
    this.copy = copy
    this.#allocator = new Allocator(Math.max(SMALLEST_BLOCK, reserved), heap.engineBytes)
    this.#rank = rank
  }

  get used(): number {
    return this.#allocator.used
  }

  /** @throws ERR_TSR_ENGINE_MEMORY */
  allocate(bytes: number): number {
    const at = this.#allocator.allocate(bytes)
    if (at < 0) {
      const { used, capacity } = this.#allocator
      throw tsrError('ERR_TSR_ENGINE_MEMORY', { rank: this.#rank, bytes, used, capacity })
    }
    return at
  }

  /**
   * Like `allocate`, for the scratch of an operation. It leaves room for frames: an operation fails
   * without scratch, but the engine fails without frames.
   */
  allocateScratch(bytes: number): number {
    const { used, capacity } = this.#allocator
    const room = Math.floor(capacity * SCRATCH)
    if (used + bytes <= room) return this.allocate(bytes)
    throw tsrError('ERR_TSR_ENGINE_MEMORY', { rank: this.#rank, bytes, used, capacity: room })
  }

  release(at: number): void {
    this.#allocator.release(at)
  }

  /** A block for a header and `payload` bytes (at most EAGER_LIMIT). Freed blocks are reused. */
  takeFrameBlock(payload: number): number {
    const size = classOf(payload)
    return this.#blocks[size]?.pop() ?? this.allocate(Math.min(2 ** size, LARGEST_BLOCK))
  }

  giveFrameBlock(at: number, payload: number): void {
    const size = classOf(payload)
    const free = (this.#blocks[size] ??= [])
    if (free.length < KEPT) free.push(at)
    else this.release(at)
  }
}

/** The power of two that a frame with this payload needs, at least SMALLEST_BLOCK. */
function classOf(payload: number): number {
  return 32 - Math.clz32(Math.max(HEADER_BYTES + payload, SMALLEST_BLOCK) - 1)
}
