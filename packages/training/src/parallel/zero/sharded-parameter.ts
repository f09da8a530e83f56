import { tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { tensorFrom } from '../../backend/host-memory.ts'
import { storageOf, type Storage } from '../../backend/storage.ts'
import type { Parameter } from '../../model/parameter.ts'

/** A parameter of a model whose values are there only for as long as somebody computes with them. */
export class ShardedParameter {
  readonly parameter: Parameter
  #tensor: Tensor
  /** Undefined where the tensor itself goes and comes. */
  readonly #storage: Storage | undefined
  isWhole = true

  /** @param keepsTensor - the tensor stays, without memory, for recordings that have saved it */
  constructor(parameter: Parameter, keepsTensor: boolean) {
    this.parameter = parameter
    this.#tensor = parameter.value
    this.#storage = keepsTensor ? storageOf(parameter.value) : undefined
  }

  /** Bytes of its values. */
  get bytes(): number {
    return 4 * this.#tensor.size
  }

  /** Frees the values: who reads them now gets an error. */
  seal(): void {
    if (!this.isWhole) return
    this.isWhole = false
    if (this.#storage === undefined) this.#tensor.dispose()
    else this.#storage.free()
    this.parameter.value = sealed(this.parameter.name, this.#tensor)
  }

  /** Puts values in the place of those that are there, or of none. */
  restore(values: Float32Array): void {
    if (this.#storage === undefined) {
      if (this.isWhole) this.#tensor.dispose()
      this.#tensor = tensorFrom(values, this.parameter.shape)
    } else {
      if (this.isWhole) this.#storage.free()
      this.#storage.fill(values)
    }
    this.isWhole = true
    this.parameter.value = this.#tensor
  }

  /** Leaves a whole parameter to the model, and of a sealed one nothing. */
  dispose(): void {
    if (this.isWhole || this.#storage === undefined) return
    this.#storage.abandon()
    this.#tensor.dispose()
  }
}

/** What stands for a tensor without values: of its shape, and disposed as far as others can tell. */
function sealed(parameter: string, tensor: Tensor): Tensor {
  return Object.create(tensor, {
    isDisposedInternal: { value: true },
    dataId: {
      get: () => {
        throw tsrError('ERR_TSR_SHARDED', { parameter })
      },
    },
  }) as Tensor
}
