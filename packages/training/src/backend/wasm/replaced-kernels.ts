import { registerCpu } from '#tfjs'
import { createLogger } from '@tsrun/core'
import type { DataType, TensorInfo } from '@tensorflow/tfjs-core'
import { sizeOf, type HostArray, type HostDType } from '../../tfjs/host-arrays.ts'
import { replaceKernel, runKernel, tf, type Kernel, type KernelCall } from '../../tfjs/tfjs.ts'
import { hasNaN, heapOf, type WasmModule } from './heap.ts'
import { run } from './passes.ts'

type Call<K extends string, A> = KernelCall<K, A, WasmModule>

/** Replaces kernels of the wasm backend, and adds kernels that it lacks. */
export function installKernels(): void {
  // Make clones share the memory of the original tensor, as on other backends. The kernel of the
  // wasm backend copies the values. Copying is slow, because the tape clones every activation and
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

  // Add the kernel UnsortedSegmentSum, which the wasm backend lacks. The kernel computes the gradient
  // of tf.gather, and so of every embedding. Like the cpu backend, it skips rows whose segment is out
  // of range.
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
    run('scatter_add', tensors, rows!, sizeOf(rest), numSegments, isInteger)
    return out
  })

  // Fix Prelu: XNNPACK repeats the slopes along the first axes only.
  replaceOrRunOnCpu<Call<'x' | 'alpha', object>>('Prelu', (call, original) => {
    const { x, alpha } = call.inputs
    const own = alpha.shape.slice(alpha.shape.findIndex((length) => length !== 1))
    const isRight = sizeOf(alpha.shape) === 1 || own.join() === x.shape.slice(-own.length).join()
    return isRight ? withCopies(call, ['alpha'], original) : undefined
  })
  installCpuKernels()
}

/**
 * Kernels that run on the cpu backend, because the wasm backend lacks them or computes them wrongly. Its
 * Conv3DBackpropInputV2 has wrong results and writes outside of its tensor. Its Conv3DBackpropFilterV2 is
 * wrong for strides. Its MaxPoolWithArgmax is wrong for windows without a positive value.
 */
const KERNELS = [
  'Conv3DBackpropInputV2',
  'Conv3DBackpropFilterV2',
  'MaxPoolWithArgmax',
  'Dilation2D',
  'Dilation2DBackpropInput',
  'Dilation2DBackpropFilter',
]

/** The used part of the cpu backend (tfjs-backend-cpu 4.22, `backend_cpu.ts`). */
interface CpuBackend {
  makeTensorInfo(shape: readonly number[], dtype: DataType, values: HostArray): TensorInfo
  readSync(dataId: object): HostArray
  disposeData(dataId: object): void
}

/** Kernels that leave their result unwritten, or access other memory, if a tensor has no values. */
const OF_VALUES = ['All', 'Any', 'ArgMax', 'ArgMin', 'Max', 'Mean', 'Min', 'Prod', 'Reverse', 'Sum']

/** Kernels that read values of every dtype as float32. */
const OF_FLOATS = ['ClipByValue', 'FusedBatchNorm', 'Relu6', 'StridedSlice']
/** Kernels that replace NaN by a number. */
const LOSE_NAN = ['ClipByValue', 'Relu6']

/** Kernels that read four bytes for each bool. */
const OF_NUMBERS = ['Reverse', 'TopK', 'UnsortedSegmentSum']

/** Runs `KERNELS` on the cpu backend, and other kernels for inputs that wasm computes wrongly. */
function installCpuKernels(): void {
  for (const kernelName of KERNELS) {
    let hasWarned = false
    replaceKernel(kernelName, 'wasm', () => (call) => {
      if (!hasWarned) {
        createLogger('training').warn(
          { kernel: kernelName },
          `the wasm backend has no usable kernel ${kernelName}: it runs on the cpu backend, which is slow`,
        )
      }
      hasWarned = true
      return runOnCpu(kernelName, call)
    })
  }

  type Special = KernelCall<'x' | 'b', { readonly dtype?: string }>
  const correct = (kernelName: string, isWrong: (call: Special) => boolean): void => {
    replaceOrRunOnCpu<Special>(kernelName, (call, original) =>
      isWrong(call) ? undefined : original(call),
    )
  }
  for (const kernelName of OF_VALUES)
    correct(kernelName, ({ inputs }) => sizeOf(inputs.x.shape) === 0)
  for (const kernelName of OF_FLOATS)
    correct(kernelName, ({ inputs }) => inputs.x.dtype !== 'float32')
  for (const kernelName of OF_NUMBERS)
    correct(kernelName, ({ inputs }) => inputs.x.dtype === 'bool')
  for (const kernelName of LOSE_NAN) correct(kernelName, ({ inputs }) => hasNaN(inputs.x))
  for (const kernelName of ['Maximum', 'Minimum']) {
    correct(kernelName, ({ inputs }) => hasNaN(inputs.b))
  }
  // The kernel OneHot writes integers, even if the dtype of the result is float32.
  correct('OneHot', ({ attrs }) => attrs.dtype !== 'int32')
  // The kernel Cast uses the last byte of a number as the bool.
  correct('Cast', ({ inputs, attrs }) => attrs.dtype === 'bool' && inputs.x.dtype !== 'bool')
}

/** Replaces a kernel. Calls for which `compute` returns undefined run on the cpu backend. */
export function replaceOrRunOnCpu<C extends KernelCall<never, object>>(
  kernelName: string,
  compute: (call: C, original: Kernel<C>) => ReturnType<Kernel<C>> | undefined,
): void {
  replaceKernel<C>(
    kernelName,
    'wasm',
    (original) => (call) => compute(call, original) ?? runOnCpu(kernelName, call),
  )
}

/**
 * Runs a kernel of XNNPACK with copies of inputs. XNNPACK packs them once for each tensor, so it would not
 * notice new values in the memory of the same tensor.
 */
export function withCopies<C extends KernelCall<never, object>>(
  call: C,
  names: readonly string[],
  original: Kernel<C>,
): ReturnType<Kernel<C>> {
  const inputs: C['inputs'] & Readonly<Partial<Record<string, TensorInfo>>> = call.inputs
  const copies = names.flatMap((name) => {
    const x = inputs[name]
    if (x === undefined) return []
    const all = { begin: x.shape.map(() => 0), size: x.shape }
    return [[name, runKernel('Slice', { x }, all)] as const]
  })
  try {
    return original({ ...call, inputs: { ...inputs, ...Object.fromEntries(copies) } })
  } finally {
    tf.dispose(copies.map(([, copy]) => copy))
  }
}

/** Runs a kernel of the cpu backend and returns tensors of the wasm backend. */
function runOnCpu(
  kernelName: string,
  { inputs, attrs, backend }: KernelCall<never, object>,
): TensorInfo | TensorInfo[] {
  registerCpu()
  const wasm = backend as WasmModule
  const cpu = tf.findBackend('cpu') as unknown as CpuBackend
  const { kernelFunc: compute } = tf.getKernel(kernelName, 'cpu')
  const moved: TensorInfo[] = []
  const move = (tensor: TensorInfo) => {
    const values = wasm.typedArrayFromHeap(tensor).slice()
    const copy = cpu.makeTensorInfo(tensor.shape, tensor.dtype, values)
    moved.push(copy)
    // The gradient kernels of dilations read `rank`, which a TensorInfo lacks.
    return Object.assign(copy, { rank: copy.shape.length })
  }
  try {
    const given: Readonly<Partial<Record<string, TensorInfo>>> = inputs
    const copies = Object.fromEntries(
      Object.entries(given).map(([name, tensor]) => [name, tensor && move(tensor)]),
    )
    const call = { inputs: copies, attrs, backend: cpu } as unknown
    const results = compute(call as Parameters<typeof compute>[0])
    const outputs = [results].flat().map((result) => {
      moved.push(result)
      const output = wasm.makeOutput(result.shape, result.dtype as HostDType)
      wasm.typedArrayFromHeap(output).set(cpu.readSync(result.dataId))
      return output
    })
    return Array.isArray(results) ? outputs : outputs[0]!
  } finally {
    for (const { dataId } of moved) cpu.disposeData(dataId)
  }
}
