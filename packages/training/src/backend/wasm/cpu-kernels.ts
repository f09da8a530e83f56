import { createLogger } from '@tsrun/core'
import type { DataType, KernelFunc, TensorInfo } from '@tensorflow/tfjs-core'
import type { HostArray, HostDType } from '../../tfjs/host-arrays.ts'
import { registerCpu, tf } from '../../tfjs/tfjs.ts'
import type { WasmModule } from './tfjs-wasm.ts'

/**
 * The kernels that the wasm backend lacks or computes wrongly, and that are not worth one of our own.
 * Its Conv3DBackpropInputV2 has wrong results and writes outside of its tensor. Its MaxPool3DGrad is
 * wrong for windows without a positive value.
 */
const KERNELS = ['Conv3DBackpropInputV2', 'Einsum', 'MaxPool3DGrad']

/** The part of the cpu backend that is used here (tfjs-backend-cpu 4.22, `backend_cpu.ts`). */
interface CpuBackend {
  makeTensorInfo(shape: readonly number[], dtype: DataType, values: HostArray): TensorInfo
  readSync(dataId: object): HostArray
  disposeData(dataId: object): void
}

type Inputs = Readonly<Record<string, TensorInfo>> | readonly TensorInfo[]

/** Makes the wasm backend run these kernels on the cpu backend, with a warning when one is first used. */
export function installCpuKernels(): void {
  for (const kernelName of KERNELS) {
    const existing = tf.getKernel(kernelName, 'wasm') as unknown
    if (existing !== undefined) tf.unregisterKernel(kernelName, 'wasm')
    let hasWarned = false
    const kernelFunc: KernelFunc = ({ inputs, attrs, backend }) => {
      if (!hasWarned) warn(kernelName)
      hasWarned = true
      return withCpu((cpu) => {
        const { kernelFunc: compute } = tf.getKernel(kernelName, 'cpu')
        const run = (onCpu: Inputs) =>
          compute({ inputs: onCpu, attrs, backend: cpu } as unknown as Parameters<KernelFunc>[0])
        return moveTo(
          cpu,
          backend as WasmModule,
          inputs as Inputs,
          run as (on: Inputs) => TensorInfo,
        )
      })
    }
    tf.registerKernel({ kernelName, backendName: 'wasm', kernelFunc })
  }
}

function warn(kernelName: string): void {
  createLogger('training').warn(
    { kernel: kernelName },
    `the wasm backend has no usable kernel ${kernelName}: it runs on the cpu backend, which is slow`,
  )
}

/** Copies the inputs to the cpu backend, and the output from there. */
function moveTo(
  cpu: CpuBackend,
  wasm: WasmModule,
  inputs: Inputs,
  run: (inputs: Inputs) => TensorInfo,
): TensorInfo {
  const moved: TensorInfo[] = []
  const move = (tensor: TensorInfo): TensorInfo => {
    const values = wasm.typedArrayFromHeap(tensor).slice()
    const copy = cpu.makeTensorInfo(tensor.shape, tensor.dtype, values)
    moved.push(copy)
    return copy
  }
  try {
    const copies = Array.isArray(inputs)
      ? (inputs as readonly TensorInfo[]).map(move)
      : Object.fromEntries(Object.entries(inputs).map(([name, tensor]) => [name, move(tensor)]))
    const result = run(copies)
    moved.push(result)
    const output = wasm.makeOutput(result.shape, result.dtype as HostDType)
    wasm.typedArrayFromHeap(output).set(cpu.readSync(result.dataId))
    return output
  } finally {
    for (const { dataId } of moved) cpu.disposeData(dataId)
  }
}

/** The cpu backend prints an advertisement for tfjs-node with its first tensor, except in production. */
function withCpu<T>(compute: (cpu: CpuBackend) => T): T {
  registerCpu()
  const production = tf.env().getBool('PROD')
  tf.env().set('PROD', true)
  try {
    return compute(tf.findBackend('cpu') as unknown as CpuBackend)
  } finally {
    tf.env().set('PROD', production)
  }
}
