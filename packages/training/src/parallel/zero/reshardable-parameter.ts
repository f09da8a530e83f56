import { tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { tensorFrom, storageOf } from '../../backend/host-memory.ts'
import type { Parameter } from '../../model/parameter.ts'

/**
 * Takes a parameter of the model in ZeRO stage 3 with all its values. From now on, the values are in
 * memory only while they are in use.
 *
 * @param keepsTensor - whether resharding keeps the tensor and frees only its memory, because
 *   recordings may have saved the tensor. Otherwise resharding disposes the whole tensor
 */
export function reshardable(parameter: Parameter, keepsTensor: boolean) {
  let tensor = parameter.value
  let isUnsharded = true
  const storage = keepsTensor ? storageOf(tensor) : undefined
  const free = () => {
    if (storage === undefined) tensor.dispose()
    else storage.free()
  }
  return {
    get isUnsharded() {
      return isUnsharded
    },

    /** The size of the whole parameter in bytes. */
    bytes: 4 * tensor.size,

    /** Frees the values of the parameter. Reading `parameter.value` then throws. */
    reshard() {
      if (!isUnsharded) return
      isUnsharded = false
      free()
      parameter.value = withoutValues(parameter.name, tensor)
    },

    /** Sets all values of the parameter, and frees its previous values. */
    unshard(values: Float32Array) {
      if (isUnsharded) free()
      if (storage === undefined) tensor = tensorFrom(values, parameter.shape)
      else storage.fill(values)
      isUnsharded = true
      parameter.value = tensor
    },

    /** Disposes the tensor if the parameter is sharded. An unsharded tensor remains the model's. */
    dispose() {
      if (isUnsharded || storage === undefined) return
      storage.abandon()
      tensor.dispose()
    },
  }
}

/**
 * Returns a placeholder for a tensor whose memory is freed. It has the tensor's shape and counts as
 * disposed.
 */
function withoutValues(parameter: string, tensor: Tensor): Tensor {
  const refuse = (): never => {
    throw tsrError('ERR_TSR_SHARDED', { parameter })
  }
  return Object.create(tensor, {
    isDisposedInternal: { value: true },
    throwIfDisposed: { value: refuse },
    dataId: { get: refuse },
  }) as Tensor
}
