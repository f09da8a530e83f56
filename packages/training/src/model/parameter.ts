import type { Tensor } from '@tensorflow/tfjs-core'

/** The part of a sharded tensor that a rank holds. */
export interface Shard {
  /** The shape of the whole tensor. */
  readonly shape: readonly number[]
  /** The axis along which the tensor is split. */
  readonly axis: number
  /** The index along `axis` at which this part begins. */
  readonly offset: number
}

/**
 * A trainable tensor with its global name, for example `layers.3.weight`. To change it, assign a new
 * tensor to `value` and dispose the old one. Never write into the memory of the tensor: recordings would
 * not notice.
 */
export interface Parameter {
  readonly name: string
  /** A mutable array, because functions such as `tf.reshape` do not take readonly arrays. */
  readonly shape: number[]
  /** Present if the tensor is sharded over ranks. `shape` and `value` then describe this rank's part. */
  readonly shard?: Shard
  /**
   * Whether another rank counts this parameter in gradient norms, because several pipeline stages share
   * it. Default false.
   */
  countedElsewhere?: boolean
  /**
   * Whether `dataParallel` or `fullyShard` averages the gradients of this parameter. While they do, code
   * must not replace the parameter by another one, which would get no gradients.
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
