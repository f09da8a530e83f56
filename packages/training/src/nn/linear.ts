import type { Tensor, Tensor2D } from '@tensorflow/tfjs-core'
import { tf } from '../backend/tensorflow.ts'
import { heUniform } from '../random/initialize.ts'
import type { Module } from './module.ts'
import type { Parameter } from './parameter.ts'

export interface LinearOptions {
  /** Prefix of the parameters' names: `<name>.weight`, `<name>.bias`. */
  readonly name: string
  readonly inputs: number
  readonly outputs: number
  readonly seed: number
}

/** y = x W + b, with W [inputs, outputs] (He uniform) and b [outputs] (zeros). */
export class Linear implements Module {
  readonly weight: Parameter
  readonly bias: Parameter

  constructor({ name, inputs, outputs, seed }: LinearOptions) {
    const values = heUniform(`${name}.weight`, seed, inputs * outputs, inputs)
    this.weight = parameter(`${name}.weight`, [inputs, outputs], values)
    this.bias = parameter(`${name}.bias`, [outputs], new Float32Array(outputs))
  }

  get parameters(): readonly Parameter[] {
    return [this.weight, this.bias]
  }

  forward(x: Tensor): Tensor {
    return tf.add(tf.matMul(x as Tensor2D, this.weight.value as Tensor2D), this.bias.value)
  }
}

function parameter(name: string, shape: number[], values: Float32Array): Parameter {
  return { name, shape, value: tf.keep(tf.tensor(values, shape)) }
}
