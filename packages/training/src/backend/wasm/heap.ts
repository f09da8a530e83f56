import type { Tensor, TensorInfo } from '@tensorflow/tfjs-core'
import { instantiateKernels, type KernelExports } from '../../kernels/kernels.ts'
import { tf } from '../../tfjs/tfjs.ts'
import { isPacked } from './packed-tensors.ts'
import type { WasmModule } from './tfjs-wasm.ts'

/**
 * The memory of the wasm backend, and this package's kernels on that memory. The kernels import the
 * memory that the wasm module exports. They take the addresses of tensors, so no values are copied, and
 * growing memory does not invalidate their arguments.
 */
export class WasmHeap {
  readonly kernels: KernelExports
  readonly backend: WasmModule
  /** Temporary memory for one kernel call. */
  readonly #scratch: Scratch
  readonly #sums: Scratch

  constructor(backend: WasmModule) {
    this.backend = backend
    this.kernels = instantiateKernels(backend.wasm.asm.memory)
    this.#scratch = new Scratch(this)
    this.#sums = new Scratch(this)
  }

  /** Allocates memory and returns its address, which is never 0. Release the memory by `free`. */
  allocate(bytes: number): number {
    return this.backend.wasm._malloc(bytes) >>> 0
  }

  free(address: number): void {
    this.backend.wasm._free(address)
  }

  /** Creates an uninitialized float32 tensor. It outlives any tf.tidy. */
  tensor(shape: readonly number[]): Tensor {
    const output = this.backend.makeOutput([...shape], 'float32')
    return tf.keep(tf.engine().makeTensorFromTensorInfo(output))
  }

  addressOf({ dataId }: TensorInfo): number {
    return this.backend.getMemoryOffset(dataId)
  }

  /** Returns a view of memory, valid until the next allocation. */
  floats(address: number, length: number): Float32Array<ArrayBuffer> {
    return new Float32Array(this.backend.wasm.HEAPU8.buffer, address, length)
  }

  /** Returns a view of memory, valid until the next allocation. */
  ints(address: number, length: number): Int32Array<ArrayBuffer> {
    return new Int32Array(this.backend.wasm.HEAPU8.buffer, address, length)
  }

  /**
   * Computes the matrix product c = finish(start + a b) with c [m, n] and the inner dimension k.
   *
   * @param start - the address of n values (a bias) with which every row starts
   * @param relu - whether to replace negative results by 0
   * @param mask - the address of m n values; the result is 0 where they are 0 or less
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
   * Whether it is safe to write to the memory of a tensor. It is not if a clone or a reshaped tensor
   * shares the memory, or if XNNPACK uses a packed copy of the old values.
   */
  isWritable(tensor: TensorInfo): boolean {
    return this.backend.refCount(tensor.dataId) === 1 && !isPacked(tensor)
  }

  /** Sums the rows of x in double precision: out[j] = sum over rows of x[row, j]. */
  sumRows(out: number, x: number, rows: number, columns: number): void {
    this.kernels.sum_rows(out, x, rows, columns, this.#sums.ofSize(8 * columns))
  }
}

/** An operand of a product: a row-major matrix at an address, or its transpose. */
export interface Operand {
  readonly at: number
  readonly transposed: boolean
}

interface ProductOptions {
  readonly start?: number
  readonly relu?: boolean
  readonly mask?: number
}

/** A reusable block of memory that grows on demand. */
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

/** Returns the heap of the current backend; undefined unless it is wasm. */
export function currentHeap(): WasmHeap | undefined {
  const { backend } = tf.engine()
  return 'typedArrayFromHeap' in backend ? heapOf(backend as unknown as WasmModule) : undefined
}

export function heapOf(backend: WasmModule): WasmHeap {
  let heap = heaps.get(backend)
  if (heap === undefined) {
    heap = new WasmHeap(backend)
    heaps.set(backend, heap)
  }
  return heap
}
