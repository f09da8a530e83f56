import { choice, count, tsrError } from '@tsrun/core'
import {
  dtypeNames,
  dtypeOf,
  dtypes,
  forgetDType,
  recordDType,
  type AnyTypedArray,
  type DType,
  type TypedArrayOf,
} from '../dtype.ts'
import { instantiateKernels, type HalfDType, type Kernels } from '../kernels/kernels.ts'
import { Allocator } from './allocator.ts'
import type { Heap } from './heap.ts'

const dtypeRule = choice(...dtypeNames)
const lengthRule = count()

/** The user's part of a rank's heap: typed arrays that are sent without a copy. */
export class Arena {
  readonly heap: Heap
  readonly #rank: number
  readonly #allocator: Allocator
  #kernels: Kernels | undefined

  constructor(heap: Heap, rank: number) {
    this.heap = heap
    this.#rank = rank
    this.#allocator = new Allocator(heap.engineBytes, heap.bytes.length)
  }

  get used(): number {
    return this.#allocator.used
  }

  /**
   * Allocates a zero-filled array of `length` elements.
   *
   * @throws ERR_TSR_ARENA_EXHAUSTED, ERR_TSR_ARGUMENT
   */
  alloc<D extends DType>(dtype: D, length: number): TypedArrayOf[D] {
    const view = this.allocUnsafe(dtype, length)
    this.heap.bytes.fill(0, view.byteOffset, view.byteOffset + view.byteLength)
    return view
  }

  /** Like `alloc`, but does not clear the array. */
  allocUnsafe<D extends DType>(dtype: D, length: number): TypedArrayOf[D] {
    dtypeRule.check('dtype', dtype)
    lengthRule.check('length', length)
    const { array, bytes } = dtypes[dtype]
    const at = this.allocBytes(length * bytes)
    const view = new array(this.heap.bytes.buffer, at, length)
    recordDType(view, dtype)
    return view
  }

  /** Returns the offset of a block that is not cleared. @throws ERR_TSR_ARENA_EXHAUSTED */
  allocBytes(bytes: number): number {
    const at = this.#allocator.allocate(bytes)
    if (at < 0) {
      throw tsrError('ERR_TSR_ARENA_EXHAUSTED', {
        rank: this.#rank,
        bytes,
        used: this.#allocator.used,
        capacity: this.#allocator.capacity,
      })
    }
    return at
  }

  /** @throws ERR_TSR_BUFFER if `view` is not from `alloc` or was already freed */
  free(view: AnyTypedArray): void {
    if (!this.contains(view) || !this.#allocator.release(view.byteOffset)) {
      const problem = 'the buffer did not come from alloc(), or was freed already'
      throw tsrError('ERR_TSR_BUFFER', { operation: 'free', problem })
    }
    forgetDType(view)
  }

  /** Converts or scales floating-point numbers, as `ProcessGroup.convert` documents. */
  convert(to: AnyTypedArray, from: AnyTypedArray, factor: number): void {
    if (!this.contains(to) || !this.contains(from)) {
      const problem = 'both arrays have to come from alloc()'
      throw tsrError('ERR_TSR_BUFFER', { operation: 'convert', problem })
    }
    this.#kernels ??= instantiateKernels(this.heap.memory)
    convert(this.#kernels, to, from, factor)
  }

  releaseBytes(at: number): void {
    this.#allocator.release(at)
  }

  /** Whether `view` is in the arena, so that it needs no staging. */
  contains(view: ArrayBufferView): boolean {
    return ArrayBuffer.isView(view) && view.buffer === this.heap.bytes.buffer
  }
}

/**
 * Converts float32 to 16-bit floats or back, or scales float32. Both arrays must be in the arena.
 */
function convert(kernels: Kernels, to: AnyTypedArray, from: AnyTypedArray, factor: number): void {
  const [target, source] = [dtypeOf(to), dtypeOf(from)]
  if (to.length === from.length) {
    if (source === 'float32' && isHalf(target)) {
      kernels.narrow(target, to.byteOffset, from.byteOffset, to.length, factor)
      return
    }
    if (source === 'float32' && target === 'float32') {
      if (to.byteOffset !== from.byteOffset) (to as Float32Array).set(from as Float32Array)
      if (factor !== 1) kernels.scale(target, to.byteOffset, to.length, factor)
      return
    }
    if (isHalf(source) && target === 'float32' && factor === 1) {
      kernels.widen(source, to.byteOffset, from.byteOffset, to.length)
      return
    }
  }
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'to',
    value: `${String(to.length)} of ${String(target)} for ${String(from.length)} of ${String(source)}`,
    expected:
      'as many 16-bit floats or float32 for float32, or float32 for 16-bit floats without a factor',
  })
}

function isHalf(dtype: string | undefined): dtype is HalfDType {
  return dtype === 'float16' || dtype === 'bfloat16'
}
