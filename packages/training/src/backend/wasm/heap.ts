import type { Tensor, TensorInfo } from '@tensorflow/tfjs-core'
import type { Blas } from '#kernels'
import { instantiateKernels, type KernelExports } from '../../kernels/kernels.ts'
import { sizeOf, type HostDType } from '../../tfjs/host-arrays.ts'
import { tf } from '../../tfjs/tfjs.ts'

/** The parts of the wasm backend of TensorFlow.js (4.22) that this package relies on. */
export interface WasmModule {
  readonly wasm: {
    /** Returns the address of a new block of memory as a signed integer; 0 if there is no room. */
    _malloc(bytes: number): number
    _free(address: number): void
    readonly HEAPU8: Uint8Array<ArrayBuffer>
    /** The exports of the wasm module. */
    readonly asm: {
      readonly memory: WebAssembly.Memory
      readonly malloc: (bytes: number) => number
      readonly free: (address: number) => void
    }
    /** Functions of `backend_wasm.js`: `move`, `disposeData`. */
    readonly tfjs: {
      registerTensor(id: number, size: number, memoryOffset: number): void
      disposeData(id: number): void
    }
  }
  readonly dataIdMap: { get(dataId: object): { readonly id: number; memoryOffset: number } }
  typedArrayFromHeap(tensor: TensorInfo): Float32Array<ArrayBuffer>
  makeOutput(shape: readonly number[], dtype: HostDType): TensorInfo
  getMemoryOffset(dataId: object): number
  refCount(dataId: object): number
  incRef(dataId: object): void
}

/**
 * The memory of the wasm backend, and this package's kernels on that memory. The kernels import the
 * memory that the wasm module exports. They take the addresses of tensors, so no values are copied, and
 * growing memory does not invalidate their arguments.
 */
export class WasmHeap {
  kernels: KernelExports
  readonly backend: WasmModule
  /** A library for large products; undefined if the kernels compute all of them. */
  blas: Blas | undefined
  readonly #exact: KernelExports
  /** The buffer whose address is `#base`. */
  #buffer: ArrayBufferLike | undefined
  #base = 0
  /** Temporary memory for one kernel call. */
  readonly #scratch = growingBlock(this)
  readonly #transposed = growingBlock(this)
  /** Returns the address of memory that is valid until the next call of this function. */
  readonly temporary = growingBlock(this)

  constructor(backend: WasmModule) {
    this.backend = backend
    this.#exact = instantiateKernels(backend.wasm.asm.memory)
    this.kernels = this.#exact
  }

  /** Gives all later products the same bits on every machine. */
  makeExact(): void {
    this.kernels = this.#exact
    this.blas = undefined
  }

  /** Allocates memory and returns its address, which is never 0. Release the memory by `free`. */
  allocate(bytes: number): number {
    return this.backend.wasm._malloc(bytes) >>> 0
  }

  free(address: number): void {
    this.backend.wasm._free(address)
  }

  /** Creates an uninitialized float32 tensor that outlives any tf.tidy. */
  tensor(shape: readonly number[]): Tensor {
    return tf.keep(this.scoped(shape))
  }

  /** Creates an uninitialized float32 tensor, which the open tf.tidy or recorded pass owns. */
  scoped(shape: readonly number[]): Tensor {
    const output = this.backend.makeOutput([...shape], 'float32')
    return tf.engine().makeTensorFromTensorInfo(output)
  }

  addressOf({ dataId }: TensorInfo): number {
    return this.backend.getMemoryOffset(dataId)
  }

  /** Returns a view of memory, valid until the next allocation. */
  floats(address: number, length: number): Float32Array<ArrayBuffer> {
    return new Float32Array(this.backend.wasm.HEAPU8.buffer, address, length)
  }

  /** Computes c = finish(start + a b), with c [m, n] at an address and the inner dimension k. */
  multiply(
    c: number,
    a: Operand,
    b: Operand,
    size: ProductSize,
    options: ProductOptions = {},
  ): void {
    const [m, n, k] = size
    const {
      start = 0,
      relu = false,
      mask = 0,
      residual = 0,
      stride = n,
      accumulates = false,
    } = options
    const finisher = relu ? RELU : mask !== 0 ? MASK : residual === 0 ? 0 : ADD
    const other = mask || residual
    const { kernels, blas } = this
    const aStride = a.stride ?? (a.transposed ? m : k)
    const bStride = b.stride ?? (b.transposed ? k : n)
    if (blas !== undefined && this.usesBlas(size)) {
      if (b.transposed === true && isFasterTransposed(blas, size)) {
        const at = this.#transposed(4 * n * k)
        kernels.transpose(at, b.at, n, k, 4 * bStride)
        this.multiply(c, a, { at }, size, options)
        return
      }
      const base = this.#baseFor(blas)
      const [rows, columns, depth] = blockOf(blas, a, b, size)
      for (let row = 0; row < m; row += rows) {
        const count = Math.min(rows, m - row)
        const to = c + 4 * row * stride
        for (let column = 0; column < n; column += columns) {
          for (let from = 0; from < k; from += depth) {
            blas.multiply(
              a.transposed ?? false,
              b.transposed ?? false,
              count,
              Math.min(columns, n - column),
              Math.min(depth, k - from),
              base + a.at + 4 * (a.transposed ? from * aStride + row : row * aStride + from),
              aStride,
              base + b.at + 4 * (b.transposed ? column * bStride + from : from * bStride + column),
              bStride,
              accumulates || from > 0 ? 1 : 0,
              base + to + 4 * column,
              stride,
            )
          }
        }
        if (start === 0 && finisher === 0) continue
        kernels.finish_rows(to, count, n, start, finisher, other + 4 * row * n)
      }
      return
    }
    kernels.product(
      c,
      4 * stride,
      accumulates,
      a.at,
      b.at,
      m,
      n,
      k,
      a.transposed ? 4 : 4 * aStride,
      a.transposed ? 4 * aStride : 4,
      b.transposed ? 4 : 4 * bStride,
      b.transposed ? 4 * bStride : 4,
      start,
      finisher,
      other,
      this.#scratch(kernels.scratch_bytes()),
    )
  }

  /** Whether a BLAS computes the products of a size. */
  usesBlas([m, n, k]: ProductSize): boolean {
    return this.blas !== undefined && m * n * k >= SMALLEST
  }

  /**
   * Returns the address of an array outside the wasm memory; valid until the next allocation. Only a BLAS
   * can use it, as the result of a product without a bias, a ReLU or a mask.
   */
  addressOutside(values: Float32Array): number {
    const blas = this.blas!
    return blas.addressOf(values) - this.#baseFor(blas)
  }

  /** Returns the address of the memory in this process. */
  #baseFor({ addressOf }: Blas): number {
    const { buffer } = this.backend.wasm.asm.memory
    // Growing the memory may move it, and always replaces the buffer.
    if (buffer !== this.#buffer) {
      this.#buffer = buffer
      this.#base = addressOf(new Uint8Array(buffer, 0, 1))
    }
    return this.#base
  }

  /** Whether no clone or reshaped tensor shares the memory of a tensor, so that it may be written to. */
  isWritable({ dataId }: TensorInfo): boolean {
    return this.backend.refCount(dataId) === 1
  }
}

/** The codes of the operations that kernels apply to the sums of a product (kernels/tile.as.ts). */
const [RELU, MASK, ADD] = [1, 2, 3] as const

/** For products with fewer multiplications, calling a BLAS costs more than it saves. */
const SMALLEST = 2048

/**
 * Up to this number of multiplications, the AVX-512 kernels of OpenBLAS do not copy the operands first
 * (`sgemm_small_kernel_permit`). Dividing larger products into such products saves up to 20 % of the
 * time.
 */
const UNPACKED = 1e6
const WITHOUT_COPY = ['SkylakeX', 'Cooperlake', 'SapphireRapids']

/** Whether transposing b first takes less time than reading b across its rows without a copy. */
function isFasterTransposed({ kernels = '' }: Blas, [m, n, k]: ProductSize): boolean {
  return m >= 16 && n * k <= UNPACKED / 8 && WITHOUT_COPY.includes(kernels)
}

/** Returns how many rows and columns, and how much of the inner dimension, to compute at once. */
function blockOf(
  { kernels = '' }: Blas,
  a: Operand,
  b: Operand,
  [m, n, k]: ProductSize,
): readonly [rows: number, columns: number, depth: number] {
  const count = m * n * k
  if (count <= UNPACKED || !WITHOUT_COPY.includes(kernels)) return [m, n, k]
  if (b.transposed === true) {
    const columns = multiplesOf4(UNPACKED / (m * k))
    // If the rows of b are shorter, the kernels for a transposed b lose more time than a copy takes.
    return [m, k >= 1024 && columns > 0 ? columns : n, k]
  }
  if (count > 40 * UNPACKED) {
    // Compute whole rows of c, because c does not fit into the caches.
    const rows = multiplesOf4(UNPACKED / (n * k))
    return [a.transposed === true || rows < 8 ? m : rows, n, k]
  }
  // Choose a part of b that fits into the first-level cache. Its rows are whole vectors of 16 values.
  const columns = even(n, Math.max(64, 8192 / k), 16)
  const depth = even(k, 8192 / columns)
  return [even(m, (0.8 * UNPACKED) / (columns * depth)), columns, depth]
}

function multiplesOf4(limit: number): number {
  return 4 * Math.floor(limit / 4)
}

/** Divides `total` into equal parts of at most `most`, and rounds their size up to a multiple of `unit`. */
function even(total: number, most: number, unit = 4): number {
  return unit * Math.ceil(total / Math.ceil(total / most) / unit)
}

/** An operand of a product: a row-major matrix at an address, or its transpose. */
export interface Operand {
  readonly at: number
  /** Default false. */
  readonly transposed?: boolean
  /** The number of values from one stored row to the next; default: rows are contiguous. */
  readonly stride?: number
}

export type ProductSize = readonly [m: number, n: number, k: number]

export interface ProductOptions {
  /** The address of n values (a bias) that are added to every row. */
  readonly start?: number
  /** Whether to replace negative results by 0. */
  readonly relu?: boolean
  /** The address of m n values. The result is 0 where they are 0 or less. */
  readonly mask?: number
  /** The address of m n values to which the result is added. Cannot be combined with `relu` or `mask`. */
  readonly residual?: number
  /** The distance in values between rows of c; default n. Must be n with the options above. */
  readonly stride?: number
  /** Whether to add to the current values of c. Cannot be combined with `start`. */
  readonly accumulates?: boolean
}

/** Returns a function that returns the address of a reusable block of memory, which grows on demand. */
function growingBlock(heap: WasmHeap): (bytes: number) => number {
  let [address, size] = [0, 0]
  return (bytes) => {
    if (bytes > size) {
      const larger = heap.allocate(bytes)
      heap.free(address)
      address = larger
      size = bytes
    }
    return address
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

/** Whether a tensor of floats has the value NaN. */
export function hasNaN(tensor: TensorInfo): boolean {
  if (tensor.dtype !== 'float32') return false
  const heap = currentHeap()!
  return Number.isNaN(heap.kernels.sum_of_squares(heap.addressOf(tensor), sizeOf(tensor.shape)))
}
