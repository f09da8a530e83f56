import { tsrError } from '@tsrun/core'
import { tf } from '../tfjs.ts'
import type { WasmBackend } from './backend.ts'

const PAGE = 2 ** 16
const ADDRESSES = 2 ** 32

/**
 * The memory ends before its addresses do: malloc (Emscripten's, tfjs-backend-wasm 4.22) wraps
 * around when a request reaches beyond the last address, and gives away memory that is in use.
 * Requests of up to the rest, 128 MiB, cannot.
 */
const LIMIT = ADDRESSES - 2 ** 27

/** What malloc may take beside the bytes that it is asked for. */
const ROUNDING = 4 * PAGE

/** Stays free for what kernels allocate themselves (XNNPACK's packed filters): they abort without. */
const RESERVE = 2 ** 24

/** From here on the memory may become full. */
const NEARLY_FULL = LIMIT - 2 ** 29

/** Freed blocks of this size are kept for requests that malloc must not be asked for. */
const LARGE = 2 ** 26

const guarded = new WeakSet()

/**
 * Turns a full memory into an error.
 *
 * Without it the backend would write to address 0 on, over its own data, and die later with "memory
 * access out of bounds": it never looks at what malloc returns (`backend_wasm.ts`, `move`). All
 * tensors, and blocks for our kernels, are allocated here.
 */
export function guardMemory({ wasm }: WasmBackend): void {
  if (guarded.has(wasm)) return
  guarded.add(wasm)
  // The first call of each replaces itself.
  wasm._free(wasm._malloc(1))
  limitGrowth(wasm.asm.memory)
  const blocks = new LargeBlocks(wasm)
  const allocate = (bytes: number): number => {
    const address = blocks.take(bytes) ?? tryMalloc(wasm, bytes)
    if (address !== 0 || blocks.release() === 0) return address
    return tryMalloc(wasm, bytes)
  }
  wasm._malloc = (bytes) => {
    const address = allocate(bytes)
    if (address === 0 && bytes > 0) throw memoryError(bytes, wasm.HEAPU8.length)
    blocks.note(address, bytes)
    return address
  }
  wasm._free = (address) => {
    if (!blocks.keep(address)) wasm.asm.free(address)
  }
}

/** 0 where there is no room. */
function tryMalloc({ asm, HEAPU8 }: WasmBackend['wasm'], bytes: number): number {
  const { length } = HEAPU8
  if (length + bytes + ROUNDING > ADDRESSES) return 0
  const address = asm.malloc(bytes)
  if (address === 0 || length < NEARLY_FULL) return address
  const reserve = asm.malloc(RESERVE)
  asm.free(reserve)
  if (reserve !== 0) return address
  asm.free(address)
  return 0
}

function limitGrowth(memory: WebAssembly.Memory): void {
  const grow = memory.grow.bind(memory)
  memory.grow = (pages) => {
    // Emscripten asks for more than it needs first, then for less, and takes an error for a no.
    if (memory.buffer.byteLength + pages * PAGE > LIMIT)
      throw new RangeError('the limit is reached')
    return grow(pages)
  }
}

/** Large blocks that were freed while much of the memory is in use. */
class LargeBlocks {
  readonly #wasm: WasmBackend['wasm']
  readonly #sizes = new Map<number, number>()
  #free: number[] = []

  constructor(wasm: WasmBackend['wasm']) {
    this.#wasm = wasm
  }

  /** The smallest free block for a large request, at most a quarter too large. */
  take(bytes: number): number | undefined {
    if (bytes < LARGE) return undefined
    const sizeOf = (address: number) => this.#sizes.get(address)!
    const [best] = this.#free
      .filter((address) => sizeOf(address) >= bytes && sizeOf(address) <= 1.25 * bytes)
      .sort((a, b) => sizeOf(a) - sizeOf(b))
    if (best !== undefined) this.#free = this.#free.filter((address) => address !== best)
    return best
  }

  note(address: number, bytes: number): void {
    const at = address >>> 0
    if (bytes >= LARGE && !this.#sizes.has(at)) this.#sizes.set(at, bytes)
  }

  /** Whether the block stays here instead of being freed. */
  keep(address: number): boolean {
    const at = address >>> 0
    if (!this.#sizes.has(at)) return false
    if (this.#wasm.HEAPU8.length < ADDRESSES / 2) {
      this.#sizes.delete(at)
      return false
    }
    this.#free.push(at)
    return true
  }

  /** Frees what is kept. @returns how many blocks that were */
  release(): number {
    const released = this.#free
    this.#free = []
    for (const address of released) {
      this.#sizes.delete(address)
      this.#wasm.asm.free(address)
    }
    return released.length
  }
}

function memoryError(bytes: number, heap: number): Error {
  const { numBytes, numTensors } = tf.memory()
  return tsrError('ERR_TSR_TENSOR_MEMORY', {
    asked: mebibytes(bytes),
    used: mebibytes(numBytes),
    tensors: numTensors,
    heap: mebibytes(heap),
    limit: mebibytes(LIMIT),
  })
}

function mebibytes(bytes: number): string {
  return `${Math.round((bytes / 2 ** 20) * 10) / 10} MiB`
}
