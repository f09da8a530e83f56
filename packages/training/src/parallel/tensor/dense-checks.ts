import { tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import type { Module } from '../../model/module.ts'
import { isColumnParallel } from './layers.ts'

interface Named {
  getClassName(): string
}

/** What of a tf.layers.dense may need more than a part of it. */
export interface DenseOptions {
  readonly name: string
  readonly activation: Named & { apply(x: Tensor): Tensor }
  readonly kernelRegularizer: Named | null
  readonly biasRegularizer: Named | null
  readonly activityRegularizer: Named | null
  readonly kernelConstraint: Named | null
  readonly biasConstraint: Named | null
}

/** Activations of which each output needs its own input only. */
const ELEMENTWISE = new Set([
  ...['linear', 'relu', 'relu6', 'elu', 'selu', 'gelu', 'gelu_new', 'mish', 'swish'],
  ...['sigmoid', 'hardSigmoid', 'softplus', 'softsign', 'tanh'],
])

/**
 * @param shared - the layer's part on this rank
 * @throws ERR_TSR_ARGUMENT when a part of the layer would not do what the whole does
 */
export function checkDense(layer: DenseOptions, shared: Module): void {
  const [kernel, bias] = shared.parameters
  const hasSomeOutputs = isColumnParallel(shared) && shared.gather === 'none'
  if (hasSomeOutputs && !ELEMENTWISE.has(layer.activation.getClassName())) {
    refuse(layer, 'activation', "gather: 'replicated' in front of one that needs all outputs")
  }
  const fits = 'none for weights that the ranks share: its value would be that of a part'
  if (hasSomeOutputs && layer.activityRegularizer) refuse(layer, 'activityRegularizer', fits)
  for (const [weight, part] of [
    ['kernel', kernel],
    ['bias', bias],
  ] as const) {
    if (part?.shard === undefined) continue
    if (layer[`${weight}Regularizer`]) refuse(layer, `${weight}Regularizer`, fits)
    const constraint = layer[`${weight}Constraint`]
    if (constraint && constraint.getClassName() !== 'NonNeg') {
      refuse(layer, `${weight}Constraint`, fits)
    }
  }
}

function refuse(layer: DenseOptions, key: Exclude<keyof DenseOptions, 'name'>, expected: string) {
  const value = layer[key]!.getClassName()
  throw tsrError('ERR_TSR_ARGUMENT', { name: `${key} of ${layer.name}`, value, expected })
}
