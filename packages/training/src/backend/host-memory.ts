import type { Tensor, TensorInfo } from '@tensorflow/tfjs-core'
import type { HostArray, HostArrays, HostDType } from './bridge/bridge.ts'
import { countCopy } from './bridge/copies.ts'
import { checkArray } from './bridge/dtypes.ts'
import { bridge } from './bridge/select.ts'
import { tf } from './tfjs.ts'

/**
 * The values of a float32 tensor, without a copy where the backend keeps them in reach (wasm, cpu).
 *
 * Read it at once: on wasm the next allocation may detach it. Never write to it.
 */
export function viewOf(tensor: TensorInfo): Float32Array {
  const { view } = bridge()
  if (view !== undefined) return view(tensor) as Float32Array
  const values = tf.engine().readSync(tensor.dataId) as Float32Array
  countCopy('toHost', values.byteLength)
  return values
}

/**
 * A new float32 tensor whose zeroed or arbitrary memory `fill` writes in full, without a copy on
 * wasm and cpu. Views of other tensors have to be taken inside `fill`, after the allocation. It
 * outlives any tf.tidy; the caller disposes it.
 */
export function createTensor(
  shape: readonly number[],
  fill: (values: Float32Array) => void,
): Tensor {
  return tf.keep(bridge().create(shape, 'float32', fill as (values: HostArray) => void))
}

/** The same, but the tensor ends with the tf.tidy or the recorded pass that is under way. */
export function scopedTensor(
  shape: readonly number[],
  fill: (values: Float32Array) => void,
): Tensor {
  const tensor = createTensor(shape, fill)
  tensor.kept = false
  return tensor
}

/** The values of a tensor, where no device has to be waited for. Never write to them. */
export function valuesAtHand(tensor: TensorInfo): HostArray | undefined {
  const { view, peek } = bridge()
  return (view ?? peek)?.(tensor)
}

/** The value of a float32 or int32 scalar, which is freed; a promise where it has to be fetched. */
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
 * Copies the values of a tensor into an array, for example a part of an arena.
 *
 * At most two copies of memory on every backend, one on wasm and cpu; see {@link copyCounts}.
 *
 * @param target - Float32Array, Int32Array or Uint8Array as the dtype float32, int32 or bool of the
 *   tensor asks for, with room for exactly its values; shared memory or not
 * @returns a promise where values can be fetched asynchronously only (webgpu): keep the tensor until
 *   it is settled. Nothing elsewhere: the values are there.
 * @throws ERR_TSR_ARGUMENT when the array does not fit
 */
export function writeTo(tensor: TensorInfo, target: HostArray): void | Promise<void> {
  checkArray('target', target, tensor.shape, tensor.dtype)
  return bridge().writeTo(tensor, target)
}

/** Adds the values of a float32 tensor to those of an array of its size. */
export function addTo(target: Float32Array, tensor: TensorInfo): void {
  const values = viewOf(tensor)
  for (let i = 0; i < values.length; i++) target[i]! += values[i]!
  countCopy('toHost', values.byteLength)
}

/**
 * A new tensor of the values of an array, which is free again when this returns. It outlives any
 * tf.tidy; the caller disposes it. At most two copies of memory, one on wasm and cpu.
 *
 * @param source - see `target` of {@link writeTo}
 * @throws ERR_TSR_ARGUMENT when the array is not of the dtype and the shape
 */
export function tensorFrom<D extends HostDType = 'float32'>(
  source: HostArrays[D],
  shape: readonly number[],
  dtype: D = 'float32' as D,
): Tensor {
  checkArray('source', source, shape, dtype)
  const { from, create } = bridge()
  const tensor =
    from?.(source, shape, dtype) ??
    create(shape, dtype, (values) => {
      values.set(source)
      countCopy('toTensor', source.byteLength)
    })
  return tf.keep(tensor)
}

/** The same, but the tensor ends with the tf.tidy or the recorded pass that is under way. */
export function scopedTensorFrom<D extends HostDType = 'float32'>(
  source: HostArrays[D],
  shape: readonly number[],
  dtype: D = 'float32' as D,
): Tensor {
  const tensor = tensorFrom(source, shape, dtype)
  tensor.kept = false
  return tensor
}
