import type { KernelFunc, TensorInfo } from '@tensorflow/tfjs-core'
import { sizeOf } from '../shape.ts'
import { tf } from '../tfjs.ts'
import type { WasmBackend } from './backend.ts'
import { heapOf } from './heap.ts'

interface SegmentSumCall {
  readonly inputs: { readonly x: TensorInfo; readonly segmentIds: TensorInfo }
  readonly attrs: { readonly numSegments: number }
  readonly backend: WasmBackend
}

/**
 * Brings the kernel UnsortedSegmentSum, which the wasm backend lacks: the gradient of tf.gather, and
 * so of every embedding. Rows whose segment is out of range are left out, as on the cpu backend.
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
