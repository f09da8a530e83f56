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
import { createAllocator } from './allocator.ts'
import type { Heap } from './heap.ts'

const dtypeRule = choice(...dtypeNames)
const lengthRule = count()

export type Arena = ReturnType<typeof createArena>

/**
 * Creates the arena: the user's part of a rank's heap, for typed arrays that are sent without a
 * copy.
 */
export function createArena(heap: Heap, rank: number) {
  const allocator = createAllocator(heap.engineBytes, heap.bytes.length)
  // Get the buffer once, because each call compares it with the buffers of its arrays.
  const { buffer } = heap.bytes
  let kernels: Kernels | undefined

  /** Returns the offset of a block that is not cleared. @throws ERR_TSR_ARENA_EXHAUSTED */
  const allocBytes = (bytes: number): number => {
    const at = allocator.allocate(bytes)
    if (at < 0) {
      const { used, capacity } = allocator
      throw tsrError('ERR_TSR_ARENA_EXHAUSTED', { rank, bytes, used: used(), capacity })
    }
    return at
  }

  /** Like `alloc`, but does not clear the array. */
  const allocUnsafe = <D extends DType>(dtype: D, length: number): TypedArrayOf[D] => {
    dtypeRule.check('dtype', dtype)
    lengthRule.check('length', length)
    const { array, bytes } = dtypes[dtype]
    const view = new array(buffer, allocBytes(length * bytes), length)
    recordDType(view, dtype)
    return view
  }

  /** Whether `view` is in the arena, so that it needs no staging. */
  const contains = (view: ArrayBufferView): boolean =>
    ArrayBuffer.isView(view) && view.buffer === buffer

  return {
    heap,
    /**
     * Allocates a zero-filled array of `length` elements.
     *
     * @throws ERR_TSR_ARENA_EXHAUSTED, ERR_TSR_ARGUMENT
     */
    alloc<D extends DType>(dtype: D, length: number): TypedArrayOf[D] {
      const view = allocUnsafe(dtype, length)
      heap.bytes.fill(0, view.byteOffset, view.byteOffset + view.byteLength)
      return view
    },
    allocUnsafe,
    allocBytes,
    /** @throws ERR_TSR_BUFFER if `view` is not from `alloc` or was already freed */
    free(view: AnyTypedArray): void {
      if (!contains(view) || !allocator.release(view.byteOffset)) {
        const problem = 'the buffer did not come from alloc(), or was freed already'
        throw tsrError('ERR_TSR_BUFFER', { operation: 'free', problem })
      }
      forgetDType(view)
    },
    /** Converts or scales floats, as `ProcessGroup.convert` documents. */
    convert(to: AnyTypedArray, from: AnyTypedArray, factor: number): void {
      if (!contains(to) || !contains(from)) {
        const problem = 'both arrays have to come from alloc()'
        throw tsrError('ERR_TSR_BUFFER', { operation: 'convert', problem })
      }
      kernels ??= instantiateKernels(heap.memory)
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
    },
    releaseBytes(at: number): void {
      allocator.release(at)
    },
    contains,
  }
}

function isHalf(dtype: string | undefined): dtype is HalfDType {
  return dtype === 'float16' || dtype === 'bfloat16'
}
