import { tsrError } from '@tsrun/core'
import { tf } from '../../tfjs/tfjs.ts'
import type { WasmModule } from './heap.ts'

const PAGE = 2 ** 16
const ADDRESSES = 2 ** 32

/**
 * The largest size of the memory in bytes. If a request reaches beyond the last address, malloc of
 * Emscripten (tfjs-backend-wasm 4.22) wraps around and returns memory that is in use. The margin of 128
 * MiB prevents that for requests of up to 128 MiB.
 */
const LIMIT = ADDRESSES - 2 ** 27

/** The largest number of bytes that malloc allocates beyond a request. */
const ROUNDING = 4 * PAGE

/** Bytes that stay free for kernels, which abort without memory, for example for packed filters. */
const RESERVE = 2 ** 24

/** From this memory size on, each request is checked to leave `RESERVE` bytes free. */
const NEARLY_FULL = LIMIT - 2 ** 29

/** Freed blocks from this size on may be kept: malloc cannot serve large requests near the limit. */
const LARGE = 2 ** 26

/**
 * The size of a cache line. Products of values that begin elsewhere take up to 1.6 times as long with
 * AVX-512, because each vector of 64 bytes is then in two lines. Emscripten aligns to 8 bytes.
 */
export const LINE = 64

const guarded = new WeakSet()

/**
 * Makes allocations throw an error when the memory is full, and aligns them to cache lines.
 *
 * The backend does not check the result of malloc (`backend_wasm.ts`, `move`). The backend would write
 * to address 0, over its own data, and fail later with "memory access out of bounds". All tensors and
 * the memory of this package's kernels are allocated through this guard.
 */
export function guardMemory({ wasm }: WasmModule): void {
  if (guarded.has(wasm)) return
  guarded.add(wasm)
  // Call the functions of Emscripten once, because they replace themselves at their first call.
  wasm._free(wasm._malloc(1))
  limitGrowth(wasm.asm.memory)
  /** The sizes of large blocks by address. */
  const sizes = new Map<number, number>()
  /** Large blocks that were freed while more than half of the memory was in use. */
  let kept: number[] = []
  /** Takes a kept block that fits a request and is at most 25 % larger. */
  const takeKept = (bytes: number) => {
    const found = kept.find((address) => {
      const size = sizes.get(address)!
      return size >= bytes && size <= 1.25 * bytes
    })
    kept = kept.filter((address) => address !== found)
    return found
  }
  const free = (address: number) => {
    sizes.delete(address >>> 0)
    wasm.asm.free(address)
  }
  const allocate = (bytes: number) => {
    let address = takeKept(bytes) ?? tryMalloc(wasm, bytes)
    if (address === 0 && kept.length > 0) {
      kept.forEach(free)
      kept = []
      address = tryMalloc(wasm, bytes)
    }
    if (address === 0 && bytes > 0) throw memoryError(bytes, wasm.HEAPU8.length)
    // A reused block may be larger than the request.
    if (bytes >= LARGE && !sizes.has(address >>> 0)) sizes.set(address >>> 0, bytes)
    return address >>> 0
  }
  /** The addresses of blocks by the aligned addresses inside them. */
  const origins = new Map<number, number>()
  wasm._malloc = (bytes) => {
    if (bytes < LINE) return allocate(bytes)
    const origin = allocate(bytes + LINE - 8)
    const address = LINE * Math.ceil(origin / LINE)
    if (address !== origin) origins.set(address, origin)
    return address
  }
  wasm._free = (aligned) => {
    const address = origins.get(aligned >>> 0) ?? aligned
    origins.delete(aligned >>> 0)
    if (sizes.has(address >>> 0) && wasm.HEAPU8.length >= ADDRESSES / 2) kept.push(address >>> 0)
    else free(address)
  }
}

/** @returns 0 if there is no room */
function tryMalloc({ asm, HEAPU8 }: WasmModule['wasm'], bytes: number): number {
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
    // Emscripten first tries to grow by more than needed, then by less. An error counts as a refusal.
    if (memory.buffer.byteLength + pages * PAGE > LIMIT)
      throw new RangeError('the limit is reached')
    return grow(pages)
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
