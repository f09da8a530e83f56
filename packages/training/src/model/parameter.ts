import type { Tensor } from '@tensorflow/tfjs-core'

/** The part of a tensor that a rank holds. */
export interface Shard {
  /** The shape of the whole tensor. */
  readonly shape: readonly number[]
  /** The axis along which the tensor is split. */
  readonly axis: number
  /** The index on that axis at which this part begins. */
  readonly offset: number
}

/**
 * A trained tensor with its global name, for example `layers.3.weight`.
 *
 * To change it, assign a new tensor to `value` and dispose the old one. Never write into its memory: the
 * wasm backend keeps packed copies of weights.
 */
export interface Parameter {
  readonly name: string
  readonly shape: readonly number[]
  /** Present if the tensor is sharded over ranks: `shape` and `value` then describe this rank's part. */
  readonly shard?: Shard
  /**
   * True if another rank counts this parameter in norms. If several pipeline stages share a parameter,
   * only one of them counts it. Default false.
   */
  countedElsewhere?: boolean
  /**
   * True while `dataParallel` or `fullyShard` averages its gradients: a parameter that replaced it would
   * get none.
   */
  isReplicated?: boolean
  value: Tensor
}

/** Replaces the value of the parameter by `next` and disposes the old one. */
export function replaceValue(parameter: Parameter, next: Tensor): void {
  const old = parameter.value
  parameter.value = next
  old.dispose()
}
