import type { Tensor, TensorInfo } from '@tensorflow/tfjs-core'
import { instantiateKernels, type KernelExports } from '../../kernels/kernels.ts'
import { tf } from '../../tfjs/tfjs.ts'
import { isPacked } from './packed-tensors.ts'
import type { WasmModule } from './tfjs-wasm.ts'

/**
 * The memory of the wasm backend, and this package's kernels on it.
 *
 * The kernels import the memory that the module of the backend exports. They take the addresses of
 * tensors, so nothing is copied, and views that are detached when memory grows do not matter.
 */
export class WasmHeap {
  readonly kernels: KernelExports
  readonly backend: WasmModule
  /** Memory for the duration of one call of a kernel. */
  readonly #scratch: Scratch
  readonly #sums: Scratch

  constructor(backend: WasmModule) {
    this.backend = backend
    this.kernels = instantiateKernels(backend.wasm.asm.memory)
    this.#scratch = new Scratch(this)
    this.#sums = new Scratch(this)
  }

  /** Allocates memory and returns its address, never 0. Release it with `free`. */
  allocate(bytes: number): number {
    return this.backend.wasm._malloc(bytes) >>> 0
  }

  free(address: number): void {
    this.backend.wasm._free(address)
  }

  /** Creates a float32 tensor with arbitrary values, which outlives any tf.tidy. */
  tensor(shape: readonly number[]): Tensor {
    const output = this.backend.makeOutput([...shape], 'float32')
    return tf.keep(tf.engine().makeTensorFromTensorInfo(output))
  }

  addressOf({ dataId }: TensorInfo): number {
    return this.backend.getMemoryOffset(dataId)
  }

  /** Returns a view, valid until the next allocation. */
  floats(address: number, length: number): Float32Array<ArrayBuffer> {
    return new Float32Array(this.backend.wasm.HEAPU8.buffer, address, length)
  }

  /** Returns a view, valid until the next allocation. */
  ints(address: number, length: number): Int32Array<ArrayBuffer> {
    return new Int32Array(this.backend.wasm.HEAPU8.buffer, address, length)
  }

  /**
   * c = finish(start + a b), where c is [m, n] and the products are summed over k.
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
   * Whether writing to the memory of the tensor changes only this tensor, and later results see the new
   * values. Clones and reshaped tensors share memory, and XNNPACK keeps packed copies.
   */
  isWritable(tensor: TensorInfo): boolean {
    return this.backend.refCount(tensor.dataId) === 1 && !isPacked(tensor)
  }

  /** out[j] = sum over rows of x[row, j], in double precision */
  sumRows(out: number, x: number, rows: number, columns: number): void {
    this.kernels.sum_rows(out, x, rows, columns, this.#sums.ofSize(8 * columns))
  }
}

/** A row-major matrix at an address, or its transpose. */
export interface Operand {
  readonly at: number
  readonly transposed: boolean
}

interface ProductOptions {
  readonly start?: number
  readonly relu?: boolean
  readonly mask?: number
}

/** A block of memory that is reused by the next call and grows on demand. */
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

/** The heap of the current backend, if that is wasm. */
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
