import type { Tensor } from '@tensorflow/tfjs-core'

/** Which part of a whole tensor a rank holds. */
export interface Shard {
  /** Of the whole. */
  readonly shape: readonly number[]
  /** The axis along which it is cut. */
  readonly axis: number
  /** Where this part begins on that axis. */
  readonly offset: number
}

/**
 * A trained tensor with its global name, for example `layers.3.weight`.
 *
 * To change it, put a new tensor into `value` and dispose the old one; never write into its memory:
 * the wasm backend keeps packed copies of weights that it has multiplied with.
 */
export interface Parameter {
  readonly name: string
  readonly shape: readonly number[]
  /** Where the ranks of a group share the tensor: `shape` and `value` are those of this rank's part. */
  readonly shard?: Shard
  /**
   * True where another rank counts it: of the pipeline stages that have a parameter of this name, one
   * counts its values where each counts once, as in a norm. Default false.
   */
  countedElsewhere?: boolean
  value: Tensor
}

/** Puts `next` in the place of the parameter's value and frees the old one. */
export function replaceValue(parameter: Parameter, next: Tensor): void {
  const old = parameter.value
  parameter.value = next
  old.dispose()
}
