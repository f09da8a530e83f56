import { tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { tensorFrom } from '../../backend/host-memory.ts'
import { storageOf } from '../../backend/host-memory.ts'
import type { Parameter } from '../../model/parameter.ts'
import type { Storage } from '../../tfjs/backend.ts'

/** A parameter of the model in stage 3, whose values exist only while they are in use. */
export class ReshardableParameter {
  readonly parameter: Parameter
  #tensor: Tensor
  /** The tensor's memory; undefined if resharding disposes the whole tensor instead. */
  readonly #storage: Storage | undefined
  isUnsharded = true

  /**
   * @param keepsTensor - whether to keep the tensor without its memory, for recordings that have saved it
   */
  constructor(parameter: Parameter, keepsTensor: boolean) {
    this.parameter = parameter
    this.#tensor = parameter.value
    this.#storage = keepsTensor ? storageOf(parameter.value) : undefined
  }

  /** Bytes of its values. */
  get bytes(): number {
    return 4 * this.#tensor.size
  }

  /** Frees the values. Reading the parameter's value then throws. */
  reshard(): void {
    if (!this.isUnsharded) return
    this.isUnsharded = false
    if (this.#storage === undefined) this.#tensor.dispose()
    else this.#storage.free()
    this.parameter.value = withoutValues(this.parameter.name, this.#tensor)
  }

  /** Sets the parameter's values, and frees previous ones. */
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

  /** Frees the tensor of a sharded parameter. An unsharded one stays the model's. */
  dispose(): void {
    if (this.isUnsharded || this.#storage === undefined) return
    this.#storage.abandon()
    this.#tensor.dispose()
  }
}

/** Stands in for a tensor without values: has its shape, and counts as disposed. */
function withoutValues(parameter: string, tensor: Tensor): Tensor {
  return Object.create(tensor, {
    isDisposedInternal: { value: true },
    dataId: {
      get: () => {
        throw tsrError('ERR_TSR_SHARDED', { parameter })
      },
    },
  }) as Tensor
}
