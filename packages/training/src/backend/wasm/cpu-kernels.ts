import { registerCpu } from '#tfjs'
import { createLogger } from '@tsrun/core'
import type { DataType, TensorInfo } from '@tensorflow/tfjs-core'
import { sizeOf, type HostArray, type HostDType } from '../../tfjs/host-arrays.ts'
import { replaceKernel, tf, type KernelCall } from '../../tfjs/tfjs.ts'
import { hasNaN, type WasmModule } from './heap.ts'

/**
 * Kernels that run on the cpu backend, because the wasm backend lacks them or computes them wrongly. Its
 * Conv3DBackpropInputV2 has wrong results and writes outside of its tensor. Its Conv3DBackpropFilterV2 is
 * wrong for strides. Its pooling kernels are wrong for windows without a positive value.
 */
const KERNELS = [
  'Conv3DBackpropInputV2',
  'Conv3DBackpropFilterV2',
  'MaxPool3D',
  'MaxPool3DGrad',
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

/**
 * Replaces the kernels in `KERNELS` by those of the cpu backend. Logs a warning at the first use of each.
 */
export function installCpuKernels(): void {
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
}

/** Kernels that leave their result unwritten, or access other memory, if a tensor has no values. */
const OF_VALUES = ['All', 'Any', 'ArgMax', 'ArgMin', 'Max', 'Mean', 'Min', 'Prod', 'Reverse', 'Sum']

/** Kernels that read values of every dtype as float32. */
const OF_FLOATS = ['ClipByValue', 'FusedBatchNorm', 'Relu6', 'StridedSlice']
/** Kernels that replace NaN by a number. */
const LOSE_NAN = ['ClipByValue', 'Relu6']

/** Kernels that read four bytes for each bool. */
const OF_NUMBERS = ['Reverse', 'TopK', 'UnsortedSegmentSum']

/** Uses the cpu backend for inputs that kernels of the wasm backend compute wrongly. */
export function correctSpecialInputs(): void {
  type Call = KernelCall<'x' | 'b' | 'alpha', { readonly dtype: string }>
  const correct = (
    kernelName: string,
    isWrong: (inputs: Call['inputs'], attrs: Call['attrs']) => boolean,
  ): void => {
    replaceKernel<Call>(
      kernelName,
      'wasm',
      (original) => (call) =>
        isWrong(call.inputs, call.attrs) ? runOnCpu(kernelName, call) : original(call),
    )
  }
  for (const kernelName of OF_VALUES) correct(kernelName, ({ x }) => sizeOf(x.shape) === 0)
  for (const kernelName of OF_FLOATS) correct(kernelName, ({ x }) => x.dtype !== 'float32')
  for (const kernelName of OF_NUMBERS) correct(kernelName, ({ x }) => x.dtype === 'bool')
  for (const kernelName of LOSE_NAN) correct(kernelName, ({ x }) => hasNaN(x))
  for (const kernelName of ['Maximum', 'Minimum']) correct(kernelName, ({ b }) => hasNaN(b))
  // The kernel takes the last byte of a whole number.
  correct('Cast', ({ x }, { dtype }) => dtype === 'bool' && x.dtype !== 'bool')
  // XNNPACK repeats the slopes along the first axes only.
  correct('Prelu', ({ x, alpha }) => {
    const own = alpha.shape.slice(alpha.shape.findIndex((length) => length !== 1))
    return sizeOf(alpha.shape) !== 1 && own.join() !== x.shape.slice(-own.length).join()
  })
}

/** Runs a kernel of the cpu backend and returns tensors of the wasm backend. */
export function runOnCpu(
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
