import type { Tensor, TensorInfo } from '@tensorflow/tfjs-core'
import { currentEager, type Eager } from '../eager.ts'
import { sizeOf } from '../shape.ts'
import { fetchedBridge } from './array.ts'
import type { Bridge } from './bridge.ts'
import { countCopy } from './copies.ts'

/*
 * The binding gives and takes values as new arrays of JavaScript. Large ones cost more than the copy:
 * the kernel clears their memory page by page. TensorFlow takes an array's own memory for a tensor
 * where that is aligned as it likes, and has operations that write into a tensor's memory.
 */

/** Elements from which two operations of TensorFlow take less than a new array. */
const LARGE = 16 * 1024

/** Bytes to which TensorFlow wants memory aligned that it does not copy. */
const ALIGNMENT = 64

/** Elements of the array that values wait in; what is larger gets a new one. */
const MOST_STAGED = 16 * 1024 * 1024

let staged = new Float32Array(0)
let isStaging = false

/** As `fetchedBridge`, but large float32 values on the CPU go without new arrays: a copy each way. */
export const tensorflowBridge: Bridge = {
  peek: fetchedBridge.peek!,
  writeTo(tensor, target) {
    const eager = eagerFor(tensor.dtype, target.length)
    if (eager === undefined || !overwrite(eager, target as Float32Array, tensor)) {
      void fetchedBridge.writeTo(tensor, target)
      return
    }
    countCopy('toHost', target.byteLength)
  },
  create(shape, dtype, fill) {
    const size = sizeOf(shape)
    const eager = isStaging || size > MOST_STAGED ? undefined : eagerFor(dtype, size)
    if (eager === undefined) return fetchedBridge.create(shape, dtype, fill)
    if (staged.length < size) staged = new Float32Array(size)
    const values = staged.subarray(0, size)
    isStaging = true
    try {
      fill(values)
    } finally {
      isStaging = false
    }
    return copy(eager, values, shape)
  },
  from(source, shape, dtype) {
    const eager = eagerFor(dtype, source.length)
    return eager && copy(eager, source as Float32Array, shape)
  },
}

function eagerFor(dtype: string, size: number): Eager | undefined {
  if (dtype !== 'float32' || size < LARGE) return undefined
  const eager = currentEager()
  return eager?.isOnHost === true ? eager : undefined
}

/** A tensor of TensorFlow's own memory. */
function copy(eager: Eager, source: Float32Array, shape: readonly number[]): Tensor {
  const alias = eager.aliasOf(source, shape)
  try {
    countCopy('toTensor', source.byteLength)
    return eager.take(eager.copy(alias), shape)
  } finally {
    eager.free(alias)
  }
}

/** By buffer: whether its first byte is aligned, so that TensorFlow writes into the buffer itself. */
const writable = new WeakMap<ArrayBufferLike, boolean>()

/** Whether TensorFlow has written the tensor's values into the array. */
function overwrite(eager: Eager, target: Float32Array, tensor: TensorInfo): boolean {
  if (target.byteOffset % ALIGNMENT !== 0) return false
  const { buffer } = target
  let isWritable = writable.get(buffer)
  if (isWritable === undefined) {
    isWritable = takesWrites(eager, target.subarray(0, ALIGNMENT / target.BYTES_PER_ELEMENT))
    writable.set(buffer, isWritable)
  }
  if (isWritable) write(eager, target, eager.handleOf(tensor), tensor.shape)
  return isWritable
}

/** Tries it, on memory that is overwritten anyway. */
function takesWrites(eager: Eager, probe: Float32Array): boolean {
  const values = Float32Array.from(probe, (_, i) => i + 1)
  probe.fill(0)
  const source = eager.aliasOf(values, [values.length])
  try {
    write(eager, probe, source, [values.length])
  } finally {
    eager.free(source)
  }
  return probe.every((value, i) => value === i + 1)
}

function write(eager: Eager, target: Float32Array, source: number, shape: readonly number[]): void {
  const alias = eager.aliasOf(target, [1, ...shape])
  try {
    eager.overwrite(alias, source)
  } finally {
    eager.free(alias)
  }
}
