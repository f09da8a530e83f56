import { tsrError } from '@tsrun/core'
import { createAllocator } from '../../arena/allocator.ts'
import type { Heap } from '../../arena/heap.ts'
import type { Kernels } from '../../kernels/kernels.ts'
import { EAGER_LIMIT, HEADER_BYTES } from './frame.ts'

/** Smallest block in bytes. Each larger block size is twice the one before, up to LARGEST_BLOCK. */
const SMALLEST_BLOCK = 64
const LARGEST_BLOCK = HEADER_BYTES + EAGER_LIMIT
const SCRATCH = 0.875
/** Number of free blocks of each size to keep. */
const KEPT = 64

/** The engine's part of the heap: blocks for frames, and scratch for algorithms. */
export class EngineMemory {
  readonly heap: Heap
  /** Copies bytes within the heap; the ranges may overlap. */
  readonly copy: Kernels['copy']
  readonly #rank: number
  readonly #allocator: ReturnType<typeof createAllocator>
  readonly #blocks: number[][] = []

  /** @param reserved - number of bytes at the low end of the heap that belong to the transport */
  constructor(heap: Heap, rank: number, copy: Kernels['copy'], reserved = 0) {
    this.heap = heap
    this.copy = copy
    this.#allocator = createAllocator(Math.max(SMALLEST_BLOCK, reserved), heap.engineBytes)
    this.#rank = rank
  }

  get used(): number {
    return this.#allocator.used()
  }

  /**
   * @param room - the number of bytes of the memory that may be in use afterwards; default: all
   * @throws ERR_TSR_ENGINE_MEMORY
   */
  allocate(bytes: number, room = this.#allocator.capacity): number {
    const { used } = this
    const at = used + bytes <= room ? this.#allocator.allocate(bytes) : -1
    if (at >= 0) return at
    throw tsrError('ERR_TSR_ENGINE_MEMORY', { rank: this.#rank, bytes, used, capacity: room })
  }

  /**
   * Like `allocate`, for the scratch of an operation. It leaves some memory for frames: without
   * scratch memory one operation fails, but without frames the engine fails.
   */
  allocateScratch(bytes: number): number {
    return this.allocate(bytes, Math.floor(this.#allocator.capacity * SCRATCH))
  }

  release(at: number): void {
    this.#allocator.release(at)
  }

  /** Returns a block for a header and `payload` bytes, at most EAGER_LIMIT. */
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

/** Returns the size class of a frame with this payload: the exponent of a power of two. */
function classOf(payload: number): number {
  return 32 - Math.clz32(Math.max(HEADER_BYTES + payload, SMALLEST_BLOCK) - 1)
}
