import type { Tensor, TensorInfo } from '@tensorflow/tfjs-core'
import {
  checkArray,
  countCopy,
  type HostArray,
  type HostArrays,
  type HostDType,
} from '../tfjs/host-arrays.ts'
import type { Storage } from '../tfjs/backend.ts'
import { tf } from '../tfjs/tfjs.ts'
import { currentBackend } from './current.ts'
import { currentHeap } from './wasm/heap.ts'

/**
 * Returns the values of a float32 tensor, without a copy if the host can access its memory (wasm, cpu).
 *
 * Read the array immediately: on wasm the next allocation may detach it. Never write to the array.
 */
export function viewOf(tensor: TensorInfo): Float32Array {
  const { view } = currentBackend()
  if (view !== undefined) return view(tensor) as Float32Array
  const values = tf.engine().readSync(tensor.dataId) as Float32Array
  countCopy('toHost', values.byteLength)
  return values
}

/** Returns a tensor's values, for reading only; undefined if the values are only on a device. */
export function valuesAtHand(tensor: TensorInfo): HostArray | undefined {
  const { view, peek } = currentBackend()
  return (view ?? peek)?.(tensor)
}

/**
 * Creates a tensor from the values that `fill` writes, without a copy on wasm and cpu. The array
 * passed to `fill` has arbitrary contents; `fill` must write all of it. Take views of other tensors
 * inside `fill`, after the allocation. The tensor outlives any tf.tidy; the caller disposes it.
 */
export function createTensor<D extends HostDType = 'float32'>(
  shape: readonly number[],
  fill: (values: HostArrays[D]) => void,
  dtype: D = 'float32' as D,
): Tensor {
  return tf.keep(currentBackend().create(shape, dtype, fill as (values: HostArray) => void))
}

/** Like `createTensor`, but the current tf.tidy or recorded pass owns the tensor. */
export function scopedTensor(
  shape: readonly number[],
  fill: (values: Float32Array) => void,
): Tensor {
  const tensor = createTensor(shape, fill)
  tensor.kept = false
  return tensor
}

/**
 * Creates a tensor from a copy of an array. The tensor outlives any tf.tidy; the caller disposes
 * it. Copies memory once on wasm and cpu, at most twice on other backends.
 *
 * @param source - an array of the type that {@link writeTo} requires for `target`
 * @throws ERR_TSR_ARGUMENT when the array does not match the dtype and the shape
 */
export function tensorFrom<D extends HostDType = 'float32'>(
  source: HostArrays[D],
  shape: readonly number[],
  dtype: D = 'float32' as D,
): Tensor {
  checkArray('source', source, shape, dtype)
  const { createFrom, create } = currentBackend()
  const tensor =
    createFrom?.(source, shape, dtype) ??
    create(shape, dtype, (values) => {
      values.set(source)
      countCopy('toTensor', source.byteLength)
    })
  return tf.keep(tensor)
}

/** Like `tensorFrom`, but the current tf.tidy or recorded pass owns the tensor. */
export function scopedTensorFrom<D extends HostDType = 'float32'>(
  source: HostArrays[D],
  shape: readonly number[],
  dtype: D = 'float32' as D,
): Tensor {
  const tensor = tensorFrom(source, shape, dtype)
  tensor.kept = false
  return tensor
}

/**
 * Copies the values of a tensor into an array, for example a part of an arena.
 *
 * Copies memory once on wasm and cpu, at most twice on other backends; see `copyCounts`.
 *
 * @param target - a Float32Array, Int32Array or Uint8Array for a tensor of dtype float32, int32 or
 *   bool. Its length is the number of values of the tensor. Its memory may be shared.
 * @returns a promise if values can only be fetched asynchronously (webgpu): keep the tensor until
 *   it settles. On other backends undefined, after the values are copied.
 * @throws ERR_TSR_ARGUMENT when the array does not fit
 */
export function writeTo(tensor: TensorInfo, target: HostArray): void | Promise<void> {
  checkArray('target', target, tensor.shape, tensor.dtype)
  return currentBackend().writeTo(tensor, target)
}

/** Adds the values of a float32 tensor to an array of the same size. */
export function addTo(target: Float32Array, tensor: TensorInfo): void {
  const values = viewOf(tensor)
  for (let i = 0; i < values.length; i++) target[i]! += values[i]!
  countCopy('toHost', values.byteLength)
}

/** Returns the value of a float32 or int32 scalar, or a promise to fetch it. Disposes the tensor. */
export function takeScalar(tensor: Tensor): number | Promise<number> {
  const value = tensor.dtype === 'int32' ? new Int32Array(1) : new Float32Array(1)
  const written = writeTo(tensor, value)
  if (written === undefined) {
    tensor.dispose()
    return value[0]!
  }
  return written
    .finally(() => {
      tensor.dispose()
    })
    .then(() => value[0]!)
}

/**
 * Replaces the values of a float32 tensor, for example by a received message. Writes to the memory
 * of the tensor if that is safe; otherwise disposes `tensor` and returns a new one.
 *
 * Writing in place is safe on wasm, unless another tensor shares the memory: a clone, a reshaped tensor,
 * or one saved by a recording. Do not use this function for the values of parameters: replace them, so
 * that recordings notice.
 *
 * @param tensor - owned by the caller, who must use the returned tensor from now on
 * @param fill - writes all values; see {@link createTensor}
 *
 * @example
 * received = overwrite(received, (values) => values.set(buffer))
 */
export function overwrite(tensor: Tensor, fill: (values: Float32Array) => void): Tensor {
  const heap = currentHeap()
  if (tensor.dtype === 'float32' && heap?.isWritable(tensor) === true) {
    fill(heap.floats(heap.addressOf(tensor), tensor.size))
    return tensor
  }
  const next = createTensor(tensor.shape, fill)
  tensor.dispose()
  return next
}

const freeable = new WeakSet<object>()

/** Returns the memory of a float32 tensor; undefined if the backend cannot free it temporarily. */
export function storageOf(tensor: Tensor): Storage | undefined {
  freeable.add(tensor.dataId)
  return currentBackend().storageOf?.(tensor)
}

/** Whether the memory of the tensor may be freed although clones share it; see `Storage`. */
export function isFreeable({ dataId }: Tensor): boolean {
  return freeable.has(dataId)
}
