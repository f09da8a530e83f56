/** The shared memory of one rank with the views that the engine reads and writes it through. */
export interface Heap {
  readonly memory: WebAssembly.Memory
  readonly bytes: Uint8Array
  readonly unsigned: Uint32Array
  readonly doubles: Float64Array
  /** Bytes at the low end that belong to the engine: frames, unexpected messages, scratch. */
  readonly engineBytes: number
}

const PAGE = 65536

/**
 * Reserves `capacity` bytes. The pages are zero and cost nothing until they are touched; the
 * memory never grows, so that addresses and views stay valid and files may be mapped over it.
 */
export function createMemory(capacity: number): WebAssembly.Memory {
  const pages = Math.ceil(capacity / PAGE)
  return new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true })
}

/** The class has no name in a page that is not isolated from others; memory is of it all the same. */
const Shared = createMemory(0).buffer.constructor as SharedArrayBufferConstructor

/** Zeros that threads share. */
export function sharedBuffer(bytes: number): SharedArrayBuffer {
  return new Shared(bytes)
}

/** The engine's part of a heap of `capacity` bytes: at most 192 MiB, at most half. */
function engineShare(capacity: number): number {
  return Math.min(192 * 1024 * 1024, Math.floor(capacity / 2 / PAGE) * PAGE)
}

export function heapOf(memory: WebAssembly.Memory): Heap {
  const { buffer } = memory
  return {
    memory,
    bytes: new Uint8Array(buffer),
    unsigned: new Uint32Array(buffer),
    doubles: new Float64Array(buffer),
    engineBytes: engineShare(buffer.byteLength),
  }
}
