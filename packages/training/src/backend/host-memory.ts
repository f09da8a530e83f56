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
 * Read them immediately: on wasm the next allocation may detach the array. Never write to it.
 */
export function viewOf(tensor: TensorInfo): Float32Array {
  const { view } = currentBackend()
  if (view !== undefined) return view(tensor) as Float32Array
  const values = tf.engine().readSync(tensor.dataId) as Float32Array
  countCopy('toHost', values.byteLength)
  return values
}

/** Returns the values of a tensor if that needs no waiting for a device. Never write to them. */
export function valuesAtHand(tensor: TensorInfo): HostArray | undefined {
  const { view, peek } = currentBackend()
  return (view ?? peek)?.(tensor)
}

/**
 * Creates a float32 tensor from the values that `fill` writes, without a copy on wasm and cpu. The array
 * passed to `fill` has arbitrary contents, and all of it must be written. Take views of other tensors
 * inside `fill`, after the allocation. The tensor outlives any tf.tidy; the caller disposes it.
 */
export function createTensor(
  shape: readonly number[],
  fill: (values: Float32Array) => void,
): Tensor {
  return tf.keep(currentBackend().create(shape, 'float32', fill as (values: HostArray) => void))
}

/** Like `createTensor`, but the tensor belongs to the current tf.tidy or recorded pass. */
export function scopedTensor(
  shape: readonly number[],
  fill: (values: Float32Array) => void,
): Tensor {
  const tensor = createTensor(shape, fill)
  tensor.kept = false
  return tensor
}

/**
 * Creates a tensor with the values of an array, which may be reused afterwards. The tensor outlives any
 * tf.tidy; the caller disposes it. Copies memory at most twice, once on wasm and cpu.
 *
 * @param source - see `target` of {@link writeTo}
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

/** Like `tensorFrom`, but the tensor belongs to the current tf.tidy or recorded pass. */
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
 * Copies memory at most twice on every backend, once on wasm and cpu; see {@link copyCounts}.
 *
 * @param target - a Float32Array, Int32Array or Uint8Array, for the dtype float32, int32 or bool of
 *   the tensor, with room for exactly its values; its memory may be shared
 * @returns a promise if values can only be fetched asynchronously (webgpu): keep the tensor until it
 *   settles. On other backends nothing, and the values are copied.
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

/**
 * Returns the value of a float32 or int32 scalar and disposes the tensor; a promise if it must be
 * fetched.
 */
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
 * Replaces the values of a float32 tensor, in its own memory if that is safe: a receive in place.
 *
 * It is safe on wasm unless another tensor shares the memory (a clone, a reshaped tensor, or one saved
 * by a recording), or XNNPACK has a packed copy of it, as of every filter of a convolution: later
 * results would use the old values. Otherwise `tensor` is disposed and a new one is returned. Do not use
 * this for the values of parameters: replace them, so that recordings notice.
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

/** The memory of a float32 tensor; undefined if the backend cannot release it temporarily. */
export function storageOf(tensor: Tensor): Storage | undefined {
  return currentBackend().storageOf?.(tensor)
}
