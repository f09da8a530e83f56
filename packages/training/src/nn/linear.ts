import type { Tensor } from '@tensorflow/tfjs-core'
import type { Recording, RecordOptions } from '../autograd/recording.ts'
import { tf } from '../backend/tensorflow.ts'
import { heUniform } from '../random/initialize.ts'
import { recordLinearStack } from './linear-stack.ts'
import type { Module } from './module.ts'
import type { Parameter } from './parameter.ts'

export interface LinearOptions {
  /** Prefix of the parameters' names: `<name>.weight`, `<name>.bias`. */
  readonly name: string
  readonly inputs: number
  readonly outputs: number
  /** Applied to the output; default `linear`, none. */
  readonly activation?: 'linear' | 'relu'
  /** Initial values depend on it and on the parameters' names alone; default 0. */
  readonly seed?: number
}

/**
 * y = activation(x W + b), with W [inputs, outputs] (He uniform at first) and b [outputs] (zeros).
 */
export class Linear implements Module {
  readonly weight: Parameter
  readonly bias: Parameter
  readonly activation: 'linear' | 'relu'

  constructor({ name, inputs, outputs, activation = 'linear', seed = 0 }: LinearOptions) {
    const values = heUniform(`${name}.weight`, seed, inputs * outputs, inputs)
    this.weight = parameter(`${name}.weight`, [inputs, outputs], values)
    this.bias = parameter(`${name}.bias`, [outputs], new Float32Array(outputs))
    this.activation = activation
  }

  get parameters(): readonly Parameter[] {
    return [this.weight, this.bias]
  }

  /** @param x - [batch, inputs] */
  forward(x: Tensor): Tensor {
    return tf.fused.matMul({
      a: x,
      b: this.weight.value,
      bias: this.bias.value,
      activation: this.activation,
    })
  }

  record(x: Tensor, options: RecordOptions): Recording {
    return recordLinearStack([this], x, options)
  }
}

function parameter(name: string, shape: number[], values: Float32Array): Parameter {
  return { name, shape, value: tf.keep(tf.tensor(values, shape)) }
}
