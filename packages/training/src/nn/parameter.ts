import type { Tensor } from '@tensorflow/tfjs-core'

/**
 * A trained tensor with its global name, for example `layers.3.weight`.
 *
 * To change it, put a new tensor into `value` and dispose the old one; never write into its memory:
 * the wasm backend keeps packed copies of weights that it has multiplied with.
 */
export interface Parameter {
  readonly name: string
  readonly shape: readonly number[]
  value: Tensor
}

/** Puts `next` in the place of the parameter's value and frees the old one. */
export function replaceValue(parameter: Parameter, next: Tensor): void {
  const old = parameter.value
  parameter.value = next
  old.dispose()
}
