/** The shared memory of one rank, and the views through which the engine accesses it. */
export interface Heap {
  readonly memory: WebAssembly.Memory
  readonly bytes: Uint8Array
  readonly unsigned: Uint32Array
  readonly doubles: Float64Array
  /** Size of the engine's part, at the low end: frames, unexpected messages, scratch. */
  readonly engineBytes: number
}

const PAGE = 65536

/**
 * Creates a memory of `capacity` bytes. Pages are zero and take no physical memory until they are
 * touched. The memory never grows, so addresses and views stay valid, and files can be mapped over
 * it.
 */
export function createMemory(capacity: number): WebAssembly.Memory {
  const pages = Math.ceil(capacity / PAGE)
  return new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true })
}

/**
 * A page that is not cross-origin isolated has no global SharedArrayBuffer. A WebAssembly memory
 * has that class too, but takes 10 GiB of address space even if it is empty.
 */
const Shared =
  (globalThis as Partial<typeof globalThis>).SharedArrayBuffer ??
  (createMemory(0).buffer.constructor as SharedArrayBufferConstructor)

/** Allocates zero-filled memory that threads share. */
export function sharedBuffer(bytes: number): SharedArrayBuffer {
  return new Shared(bytes)
}

export function heapOf(memory: WebAssembly.Memory): Heap {
  const { buffer } = memory
  return {
    memory,
    bytes: new Uint8Array(buffer),
    unsigned: new Uint32Array(buffer),
    doubles: new Float64Array(buffer),
    // Half of the heap, at most 192 MiB.
    engineBytes: Math.min(192 * 1024 * 1024, Math.floor(buffer.byteLength / 2 / PAGE) * PAGE),
  }
}
