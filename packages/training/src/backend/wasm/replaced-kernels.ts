import { sizeOf, type HostDType } from '../../tfjs/host-arrays.ts'
import { replaceKernel, tf, type KernelCall } from '../../tfjs/tfjs.ts'
import { heapOf, type WasmModule } from './heap.ts'
import { run } from './passes.ts'

type Call<K extends string, A> = KernelCall<K, A, WasmModule>

/** Replaces kernels of the wasm backend, and adds a kernel that it lacks. */
export function installKernels(): void {
  // Make clones share the memory of the original tensor, as on other backends. The kernel of the
  // wasm backend copies the values. That is slow, because the tape clones every activation and
  // every weight that it saves.
  replaceKernel<Call<'x', object>>('Identity', 'wasm', (original) => (call) => {
    const { x } = call.inputs
    if (x.dtype === 'string') return original(call)
    call.backend.incRef(x.dataId)
    return { dataId: x.dataId, shape: x.shape, dtype: x.dtype }
  })

  // Add a fast path for sums over the first axes, such as the gradient of every bias: row by row,
  // in double precision. The kernel of the wasm backend transposes first, and leaves the result
  // unwritten if there are no rows.
  type Sum = { readonly axis: number | number[] | null; readonly keepDims: boolean }
  replaceKernel<Call<'x', Sum>>('Sum', 'wasm', (original) => (call) => {
    const { inputs, attrs, backend } = call
    const { x } = inputs
    const axes = tf.util.parseAxisParam(attrs.axis ?? [], x.shape).sort((a, b) => a - b)
    const isLeading = axes.length < x.shape.length && axes.every((axis, i) => axis === i)
    const rows = sizeOf(x.shape.slice(0, axes.length))
    if (axes.length === 0 || !isLeading || x.dtype !== 'float32') return original(call)
    const rest = x.shape.slice(axes.length)
    const shape = attrs.keepDims ? [...axes.map(() => 1), ...rest] : rest
    const out = backend.makeOutput(shape, 'float32')
    const heap = heapOf(backend)
    heap.kernels.sum_rows(heap.addressOf(out), heap.addressOf(x), rows, sizeOf(rest))
    return out
  })

  // Fix OneHot: the kernel of the wasm backend writes integers even if the dtype of the result
  // is float32.
  type OneHot = Readonly<Record<'depth' | 'onValue' | 'offValue', number>> & {
    readonly dtype: HostDType
  }
  replaceKernel<Call<'indices', OneHot>>('OneHot', 'wasm', () => (call) => {
    const { backend } = call
    const { indices } = call.inputs
    const { dtype, depth, onValue, offValue } = call.attrs
    const out = backend.makeOutput([...indices.shape, depth], dtype)
    const values = backend.typedArrayFromHeap(out).fill(offValue)
    backend.typedArrayFromHeap(indices).forEach((index, row) => {
      if (index >= 0 && index < depth) values[row * depth + index] = onValue
    })
    return out
  })

  // Add a fast path for gathering along the first axis, as embeddings do: copies whole rows. The
  // kernel of the wasm backend divides to find each value.
  type GatherCall = Call<'x' | 'indices', Readonly<Record<'axis' | 'batchDims', number>>>
  replaceKernel<GatherCall>('GatherV2', 'wasm', (original) => (call) => {
    const { inputs, attrs, backend } = call
    const { x, indices } = inputs
    const [count, ...rest] = x.shape
    const isLeading = attrs.axis === 0 && attrs.batchDims === 0 && x.dtype === 'float32'
    const isOutside = (id: number) => id < 0 || id >= count!
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

  // Add the kernel UnsortedSegmentSum, which the wasm backend lacks. It computes the gradient of
  // tf.gather, and so of every embedding. Like the cpu backend, it skips rows whose segment is out of
  // range.
  type SegmentSum = Call<'x' | 'segmentIds', { readonly numSegments: number }>
  replaceKernel<SegmentSum>('UnsortedSegmentSum', 'wasm', () => ({ inputs, attrs, backend }) => {
    const { x, segmentIds } = inputs
    const [rows, ...rest] = x.shape
    if (segmentIds.shape.length !== 1 || segmentIds.shape[0] !== rows) {
      throw new Error(
        `unsortedSegmentSum: segmentIds [${segmentIds.shape.join(', ')}] must be the first axis of x [${x.shape.join(', ')}]`,
      )
    }
    const { numSegments } = attrs
    const isInteger = x.dtype === 'int32'
    const out = backend.makeOutput([numSegments, ...rest], isInteger ? 'int32' : 'float32')
    backend.typedArrayFromHeap(out).fill(0)
    const tensors = [out, x, segmentIds]
    run('scatter_add', tensors, rows!, sizeOf(rest), numSegments, Number(isInteger))
    return out
  })
}
