import { refuseUnknown, shown, tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { checkSeed, checkChoice } from '../arguments.ts'
import type { Recording, RecordOptions } from '../model/recording.ts'
import { tf } from '../backend/tfjs.ts'
import { createParameter, heUniform, uniformValues } from './initialize.ts'
import { recordLinearStack } from './linear-stack.ts'
import type { Module } from '../model/module.ts'
import type { Parameter } from '../model/parameter.ts'
import { onRows } from './project.ts'

export interface LinearOptions {
  /** Prefix of the parameters' names: `<name>.weight`, `<name>.bias`. */
  readonly name: string
  readonly inputs: number
  readonly outputs: number
  /** Applied to the output; default `linear`, none. */
  readonly activation?: 'linear' | 'relu'
  /** Initial values depend on it and on the parameters' names alone; default 0. */
  readonly seed?: number
  /** Of the initial weights; default: He's, sqrt(2 / inputs). */
  readonly deviation?: number
}

const KNOWN = Object.keys({
  name: true,
  inputs: true,
  outputs: true,
  activation: true,
  seed: true,
  deviation: true,
} satisfies Record<keyof LinearOptions, true>)

/**
 * y = activation(x W + b), with W [inputs, outputs] (He uniform at first) and b [outputs] (zeros).
 *
 * @throws ERR_TSR_ARGUMENT
 */
export class Linear implements Module {
  readonly kind = 'linear'
  readonly weight: Parameter
  readonly bias: Parameter
  readonly activation: 'linear' | 'relu'

  constructor(options: LinearOptions) {
    checkOptions(options)
    const { name, inputs, outputs, activation = 'linear' } = options
    this.weight = createParameter(`${name}.weight`, [inputs, outputs], initialWeights(options))
    this.bias = createParameter(`${name}.bias`, [outputs], new Float32Array(outputs))
    this.activation = activation
  }

  get parameters(): readonly Parameter[] {
    return [this.weight, this.bias]
  }

  /** @param x - [..., inputs] */
  forward(x: Tensor): Tensor {
    const { activation } = this
    const [b, bias] = [this.weight.value, this.bias.value]
    return onRows(x, (a) => tf.fused.matMul({ a, b, bias, activation }))
  }

  record(x: Tensor, options: RecordOptions): Recording {
    return recordLinearStack([this], x, options)
  }
}

function checkOptions(options: LinearOptions): void {
  refuseUnknown(options, KNOWN)
  const { name, inputs, outputs, activation = 'linear', seed = 0 } = options
  if (typeof name !== 'string') {
    const expected = 'the prefix of its parameters, as in layers.0'
    throw tsrError('ERR_TSR_ARGUMENT', { name: 'name', value: shown(name), expected })
  }
  for (const [size, value] of Object.entries({ inputs, outputs })) {
    if (Number.isSafeInteger(value) && value > 0) continue
    const expected = 'a positive integer'
    throw tsrError('ERR_TSR_ARGUMENT', { name: size, value: shown(value), expected })
  }
  checkChoice('activation', activation, ['linear', 'relu'])
  checkSeed(seed)
}

function initialWeights({ name, inputs, outputs, seed = 0, deviation }: LinearOptions) {
  const [weight, length] = [`${name}.weight`, inputs * outputs]
  if (deviation === undefined) return heUniform(weight, seed, length, inputs)
  return uniformValues(weight, seed, length, Math.sqrt(3) * deviation)
}
