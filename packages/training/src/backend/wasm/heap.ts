import type { Tensor, TensorInfo } from '@tensorflow/tfjs-core'
import { instantiateKernels, type KernelExports } from '../../kernels/kernels.ts'
import { tf } from '../tfjs.ts'
import type { WasmBackend } from './backend.ts'
import { isPacked } from './packed.ts'

/**
 * The memory of the wasm backend, with kernels of our own that work inside it.
 *
 * They import the very memory that the backend's module exports, so that tensors reach them as
 * addresses, without a copy and whatever becomes of JavaScript's views when the memory grows.
 */
export class WasmHeap {
  readonly kernels: KernelExports
  readonly backend: WasmBackend
  /** For one call of a kernel. */
  readonly #scratch: Scratch
  readonly #sums: Scratch

  constructor(backend: WasmBackend) {
    this.backend = backend
    this.kernels = instantiateKernels(backend.wasm.asm.memory)
    this.#scratch = new Scratch(this)
    this.#sums = new Scratch(this)
  }

  /** The address of a block of memory, never 0; `free` it. */
  allocate(bytes: number): number {
    return this.backend.wasm._malloc(bytes) >>> 0
  }

  free(address: number): void {
    this.backend.wasm._free(address)
  }

  /** A new tensor of arbitrary float32 values, which outlives any tf.tidy. */
  tensor(shape: readonly number[]): Tensor {
    const output = this.backend.makeOutput([...shape], 'float32')
    return tf.keep(tf.engine().makeTensorFromTensorInfo(output))
  }

  addressOf({ dataId }: TensorInfo): number {
    return this.backend.getMemoryOffset(dataId)
  }

  /** A view, valid until the next allocation. */
  floats(address: number, length: number): Float32Array<ArrayBuffer> {
    return new Float32Array(this.backend.wasm.HEAPU8.buffer, address, length)
  }

  /**
   * c = finish(start + a b), where c is [m, n] and the sum over k.
   *
   * @param start - address of n values (a bias) that every row starts from
   * @param relu - takes the larger of 0 and each value
   * @param mask - address of m n values: where they are 0 or less, the result is 0
   */
  multiply(
    c: number,
    a: Operand,
    b: Operand,
    [m, n, k]: readonly [m: number, n: number, k: number],
    { start = 0, relu = false, mask = 0 }: ProductOptions = {},
  ): void {
    const finisher = relu ? 1 : mask === 0 ? 0 : 2
    const [aRow, aColumn] = a.transposed ? ([4, 4 * m] as const) : ([4 * k, 4] as const)
    const [bRow, bColumn] = b.transposed ? ([4, 4 * k] as const) : ([4 * n, 4] as const)
    const scratch = this.#scratch.ofSize(this.kernels.scratch_bytes())
    this.kernels.product(
      c,
      a.at,
      b.at,
      m,
      n,
      k,
      aRow,
      aColumn,
      bRow,
      bColumn,
      start,
      finisher,
      mask,
      scratch,
    )
  }

  /**
   * Whether writing into the tensor's memory changes this tensor alone and what comes out of it:
   * clones and reshaped tensors share memory, and XNNPACK keeps packed copies.
   */
  isWritable(tensor: TensorInfo): boolean {
    return this.backend.refCount(tensor.dataId) === 1 && !isPacked(tensor)
  }

  /** out[j] = sum over rows of x[row, j], in double precision */
  sumRows(out: number, x: number, rows: number, columns: number): void {
    this.kernels.sum_rows(out, x, rows, columns, this.#sums.ofSize(8 * columns))
  }
}

/** A matrix at an address, row by row, or that of its transpose. */
export interface Operand {
  readonly at: number
  readonly transposed: boolean
}

interface ProductOptions {
  readonly start?: number
  readonly relu?: boolean
  readonly mask?: number
}

/** A block of memory that is kept for the next call, and grows. */
class Scratch {
  readonly #heap: WasmHeap
  #address = 0
  #bytes = 0

  constructor(heap: WasmHeap) {
    this.#heap = heap
  }

  ofSize(bytes: number): number {
    if (bytes > this.#bytes) {
      const address = this.#heap.allocate(bytes)
      this.#heap.free(this.#address)
      this.#address = address
      this.#bytes = bytes
    }
    return this.#address
  }
}

const heaps = new WeakMap<object, WasmHeap>()

/** The heap of the current backend, where that is wasm. */
export function currentHeap(): WasmHeap | undefined {
  const { backend } = tf.engine()
  return 'typedArrayFromHeap' in backend ? heapOf(backend as unknown as WasmBackend) : undefined
}

export function heapOf(backend: WasmBackend): WasmHeap {
  let heap = heaps.get(backend)
  if (heap === undefined) {
    heap = new WasmHeap(backend)
    heaps.set(backend, heap)
  }
  return heap
}
