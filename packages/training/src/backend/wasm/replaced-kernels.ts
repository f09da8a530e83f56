import type { KernelFunc, TensorInfo } from '@tensorflow/tfjs-core'
import { sizeOf, type HostDType } from '../../tfjs/host-arrays.ts'
import { replaceKernel, tf } from '../../tfjs/tfjs.ts'
import { heapOf } from './heap.ts'
import type { WasmModule } from './tfjs-wasm.ts'

/**
 * Makes clones share the memory of the original tensor, as on other backends. The kernel of the wasm
 * backend copies the values. That is slow, because the tape clones every activation and every weight that
 * it saves.
 */
export function installSharedIdentity(): void {
  replaceKernel('Identity', 'wasm', (original) => (call) => {
    const { x } = call.inputs as { x: TensorInfo }
    if (x.dtype === 'string') return original(call)
    const backend = call.backend as WasmModule
    backend.incRef(x.dataId)
    return { dataId: x.dataId, shape: x.shape, dtype: x.dtype }
  })
}

interface SumCall {
  readonly inputs: { readonly x: TensorInfo }
  readonly attrs: { readonly axis: number | readonly number[] | null; readonly keepDims: boolean }
  readonly backend: WasmModule
}

/**
 * Adds a fast path for sums over the first axes, such as the gradient of every bias: row by row, in
 * double precision. The kernel of the wasm backend transposes first, and leaves the result unwritten if
 * there are no rows.
 */
export function installSum(): void {
  replaceKernel('Sum', 'wasm', (original) => (call) => {
    const { inputs, attrs, backend } = call as unknown as SumCall
    const { x } = inputs
    const axes = tf.util
      .parseAxisParam((attrs.axis ?? []) as number[], x.shape)
      .sort((a, b) => a - b)
    const isLeading = axes.length < x.shape.length && axes.every((axis, i) => axis === i)
    const rows = sizeOf(x.shape.slice(0, axes.length))
    if (axes.length === 0 || !isLeading || x.dtype !== 'float32') return original(call)
    const rest = x.shape.slice(axes.length)
    const shape = attrs.keepDims ? [...axes.map(() => 1), ...rest] : rest
    const out = backend.makeOutput(shape, 'float32')
    const heap = heapOf(backend)
    heap.sumRows(heap.addressOf(out), heap.addressOf(x), rows, sizeOf(rest))
    return out
  })
}

interface OneHotCall {
  readonly inputs: { readonly indices: TensorInfo }
  readonly attrs: {
    readonly dtype: HostDType
    readonly depth: number
    readonly onValue: number
    readonly offValue: number
  }
  readonly backend: WasmModule
}

/**
 * Fixes OneHot: the kernel of the wasm backend writes integers even if the dtype of the result is
 * float32.
 */
export function installOneHot(): void {
  replaceKernel('OneHot', 'wasm', () => (call) => {
    const { inputs, attrs, backend } = call as unknown as OneHotCall
    const { indices } = inputs
    const { dtype, depth, onValue, offValue } = attrs
    const out = backend.makeOutput([...indices.shape, depth], dtype)
    const values = backend.typedArrayFromHeap(out).fill(offValue)
    backend.typedArrayFromHeap(indices).forEach((index, row) => {
      if (index >= 0 && index < depth) values[row * depth + index] = onValue
    })
    return out
  })
}

interface GatherCall {
  readonly inputs: { readonly x: TensorInfo; readonly indices: TensorInfo }
  readonly attrs: { readonly axis: number; readonly batchDims: number }
  readonly backend: WasmModule
}

/**
 * Adds a fast path for gathering along the first axis, as embeddings do: copies whole rows. The kernel of
 * the wasm backend divides to find each value.
 */
export function installGather(): void {
  replaceKernel('GatherV2', 'wasm', (original) => (call) => {
    const { inputs, attrs, backend } = call as unknown as GatherCall
    const { x, indices } = inputs
    const [count, ...rest] = x.shape
    const isLeading = attrs.axis === 0 && attrs.batchDims === 0 && x.dtype === 'float32'
    const isOutside = (id: number): boolean => id < 0 || id >= count!
    if (!isLeading || backend.typedArrayFromHeap(indices).some(isOutside)) return original(call)
    const out = backend.makeOutput([...indices.shape, ...rest], 'float32')
    const heap = heapOf(backend)
    const [to, from] = [heap.addressOf(out), heap.addressOf(x)]
    const bytes = 4 * sizeOf(rest)
    backend.typedArrayFromHeap(indices).forEach((id, row) => {
      const start = from + id * bytes
      backend.wasm.HEAPU8.copyWithin(to + row * bytes, start, start + bytes)
    })
    return out
  })
}

interface SegmentSumCall {
  readonly inputs: { readonly x: TensorInfo; readonly segmentIds: TensorInfo }
  readonly attrs: { readonly numSegments: number }
  readonly backend: WasmModule
}

/**
 * Adds the kernel UnsortedSegmentSum, which the wasm backend lacks. It computes the gradient of
 * tf.gather, and so of every embedding. Like the cpu backend, skips rows whose segment is out of range.
 */
export function installSegmentSum(): void {
  tf.registerKernel({
    kernelName: 'UnsortedSegmentSum',
    backendName: 'wasm',
    kernelFunc: segmentSum as unknown as KernelFunc,
  })
}

function segmentSum({ inputs, attrs, backend }: SegmentSumCall): TensorInfo {
  const { x, segmentIds } = inputs
  const { numSegments } = attrs
  const rows = sizeOf(segmentIds.shape)
  if (segmentIds.shape.length !== 1 || x.shape[0] !== rows) {
    throw new Error(
      `unsortedSegmentSum: segmentIds [${segmentIds.shape.join(', ')}] must be the first axis of x [${x.shape.join(', ')}]`,
    )
  }
  const heap = heapOf(backend)
  const dtype = x.dtype === 'int32' ? 'int32' : 'float32'
  const out = backend.makeOutput([numSegments, ...x.shape.slice(1)], dtype)
  backend.typedArrayFromHeap(out).fill(0)
  const columns = sizeOf(x.shape.slice(1))
  const [to, from, ids] = [out, x, segmentIds].map((tensor) => heap.addressOf(tensor))
  heap.kernels[`scatter_add_${dtype}`](to!, from!, ids!, rows, columns, numSegments)
  return out
}
