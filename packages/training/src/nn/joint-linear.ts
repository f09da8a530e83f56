import type { Tensor } from '@tensorflow/tfjs-core'
import { tf } from '../backend/tfjs.ts'
import { createParameter, uniformValues } from './initialize.ts'
import type { Module } from '../model/module.ts'
import type { Parameter } from '../model/parameter.ts'
import { onRows } from './project.ts'

export interface JointLinearOptions {
  /** Prefix of the parameters' names: `<name>.weight`, `<name>.bias`. */
  readonly name: string
  readonly inputs: number
  /** How many layers of the same input are joined. */
  readonly parts: number
  /** Of each part. */
  readonly outputs: number
  /** Tensor parallelism cuts the outputs of a part between multiples of this. */
  readonly grain: number
  readonly seed: number
  readonly deviation: number
}

/**
 * Several linear layers of one input in one product, for example queries, keys and values: W [inputs,
 * parts, outputs] and b [parts, outputs]. In memory that is the matrix [inputs, parts x outputs]; the
 * axis of its own lets every part be cut in the same way.
 */
export class JointLinear implements Module {
  readonly kind = 'joint-linear'
  readonly weight: Parameter
  readonly bias: Parameter
  readonly grain: number

  constructor({ name, inputs, parts, outputs, grain, seed, deviation }: JointLinearOptions) {
    const length = inputs * parts * outputs
    const values = uniformValues(`${name}.weight`, seed, length, Math.sqrt(3) * deviation)
    this.weight = createParameter(`${name}.weight`, [inputs, parts, outputs], values)
    const zeros = new Float32Array(parts * outputs)
    this.bias = createParameter(`${name}.bias`, [parts, outputs], zeros)
    this.grain = grain
  }

  get parameters(): readonly Parameter[] {
    return [this.weight, this.bias]
  }

  /** @param x - [..., inputs] @returns [..., parts x outputs] */
  forward(x: Tensor): Tensor {
    const { value: weight, shape } = this.weight
    return onRows(x, (rows) =>
      tf.fused.matMul({
        a: rows,
        b: tf.reshape(weight, [shape[0]!, -1]),
        bias: tf.reshape(this.bias.value, [-1]),
      }),
    )
  }
}
