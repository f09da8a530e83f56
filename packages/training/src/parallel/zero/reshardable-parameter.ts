import { tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { tensorFrom, storageOf } from '../../backend/host-memory.ts'
import type { Parameter } from '../../model/parameter.ts'
import type { Storage } from '../../tfjs/backend.ts'

/** A parameter of the model in ZeRO stage 3. Its values are in memory only while they are in use. */
export class ReshardableParameter {
  readonly parameter: Parameter
  #tensor: Tensor
  /** The memory of the parameter's tensor. Undefined if resharding disposes the whole tensor. */
  readonly #storage: Storage | undefined
  isUnsharded = true

  /**
   * Takes a parameter with all its values.
   *
   * @param keepsTensor - whether resharding keeps the tensor and frees only its memory, because
   *   recordings may have saved the tensor
   */
  constructor(parameter: Parameter, keepsTensor: boolean) {
    this.parameter = parameter
    this.#tensor = parameter.value
    this.#storage = keepsTensor ? storageOf(parameter.value) : undefined
  }

  /** The size of the whole parameter in bytes. */
  get bytes(): number {
    return 4 * this.#tensor.size
  }

  /** Frees the values of the parameter. Reading `parameter.value` then throws. */
  reshard(): void {
    if (!this.isUnsharded) return
    this.isUnsharded = false
    if (this.#storage === undefined) this.#tensor.dispose()
    else this.#storage.free()
    this.parameter.value = withoutValues(this.parameter.name, this.#tensor)
  }

  /** Sets all values of the parameter, and frees its previous values. */
  unshard(values: Float32Array): void {
    if (this.#storage === undefined) {
      if (this.isUnsharded) this.#tensor.dispose()
      this.#tensor = tensorFrom(values, this.parameter.shape)
    } else {
      if (this.isUnsharded) this.#storage.free()
      this.#storage.fill(values)
    }
    this.isUnsharded = true
    this.parameter.value = this.#tensor
  }

  /** Disposes the tensor if the parameter is sharded. An unsharded tensor remains the model's. */
  dispose(): void {
    if (this.isUnsharded || this.#storage === undefined) return
    this.#storage.abandon()
    this.#tensor.dispose()
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
