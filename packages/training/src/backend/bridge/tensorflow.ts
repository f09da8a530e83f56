import type { Tensor } from '@tensorflow/tfjs-core'
import { currentEager, type Eager } from '../tensorflow/eager.ts'
import type { BindingKernels } from '../tensorflow/binding-kernels.ts'
import { sizeOf } from '../shape.ts'
import { fetchedBridge } from './array.ts'
import type { Bridge, HostArray, HostDType } from './bridge.ts'
import { countCopy } from './copies.ts'

/** Elements of the array that values wait in; what is larger gets a new one. */
const MOST_STAGED = 16 * 1024 * 1024

let staged = new Float32Array(0)
let isStaging = false

/**
 * As `fetchedBridge`, but float32 values go without new arrays, where the binding has kernels: a copy
 * each way on the CPU. The binding's own functions give and take a new array of JavaScript for each
 * tensor, whose memory the system has to find and to clear. From a GPU there is one copy more, into
 * memory.
 */
export const tensorflowBridge: Bridge = {
  peek: fetchedBridge.peek!,
  writeTo(tensor, target) {
    const eager = currentEager()!
    const { dtype } = tensor
    // TensorFlow keeps int32 in memory
    if (!eager.isOnHost && dtype !== 'int32') countCopy('toHost', target.byteLength)
    if (dtype === 'float32' && eager.copyOut(tensor, target as Float32Array)) {
      countCopy('toHost', target.byteLength)
    } else {
      void fetchedBridge.writeTo(tensor, target)
    }
  },
  create(shape, dtype, fill) {
    const size = sizeOf(shape)
    const isStageable = !isStaging && size <= MOST_STAGED && kernelsFor(dtype) !== undefined
    if (!isStageable) return fetchedBridge.create(shape, dtype, fill)
    if (staged.length < size) staged = new Float32Array(size)
    const values = staged.subarray(0, size)
    isStaging = true
    try {
      fill(values)
    } finally {
      isStaging = false
    }
    return copyIn(values, shape, dtype)!
  },
  from: copyIn,
}

function copyIn(source: HostArray, shape: readonly number[], dtype: HostDType): Tensor | undefined {
  const found = kernelsFor(dtype)
  if (found === undefined) return undefined
  const { eager, kernels } = found
  countCopy('toTensor', source.byteLength)
  const [handle] = kernels.copyIn(Int32Array.from(shape), source as Float32Array)
  return eager.take(handle, shape)
}

function kernelsFor(dtype: string): { eager: Eager; kernels: BindingKernels } | undefined {
  if (dtype !== 'float32') return undefined
  const eager = currentEager()
  const kernels = eager?.kernels
  return kernels && { eager, kernels }
}
