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
  /** Present if the tensor is sharded over ranks: `shape` and `value` are those of the part of this rank. */
  readonly shard?: Shard
  /**
   * Whether another rank counts the values of this parameter in a norm. If several pipeline stages have
   * a parameter, one of them counts it. Default false.
   */
  countedElsewhere?: boolean
  /**
   * True while `dataParallel` or `fullyShard` average its gradients: a parameter in its place would get
   * none.
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
