import { finite } from '@tsrun/core'
import { generator, uniform as nextUniform, type Generator } from '../random/generator.ts'

// Initial values of parameters, exported as the namespace `init`. Random values come from a generator
// seeded by the name of the parameter, so that every layout starts with the same ones.

/** Makes the initial values of a parameter; see `createParameter`. */
export type Initializer = (parameter: InitializedParameter) => Float32Array

export interface InitializedParameter {
  readonly name: string
  /** [inputs, outputs] of a linear layer, [height, width, inputs, outputs] of a convolution, or any. */
  readonly shape: readonly number[]
  readonly seed: number
}

/** All values are `value`. @throws ERR_TSR_ARGUMENT unless it is a finite number */
export function constant(value: number): Initializer {
  finite().check('the value of init.constant', value)
  return ({ shape }) => new Float32Array(sizeOf(shape)).fill(value)
}

export const zeros: Initializer = constant(0)
export const ones: Initializer = constant(1)

/**
 * Uniform in +-limit, with standard deviation limit / sqrt(3).
 *
 * @throws ERR_TSR_ARGUMENT unless it is a finite number
 */
export function uniform(limit: number): Initializer {
  finite().check('the limit of init.uniform', limit)
  return drawn((next) => (2 * nextUniform(next) - 1) * limit)
}

/**
 * Normal with mean 0 (Box & Muller, 1958). Logarithms and cosines may differ in their last bits between
 * versions of Node; uniform values do not.
 *
 * @throws ERR_TSR_ARGUMENT unless the standard deviation is a finite number from 0
 */
export function normal(deviation: number): Initializer {
  finite({ from: 0 }).check('the deviation of init.normal', deviation)
  return drawn((next) => {
    const radius = Math.sqrt(-2 * Math.log(1 - nextUniform(next)))
    return deviation * radius * Math.cos(2 * Math.PI * nextUniform(next))
  })
}

/**
 * Uniform in +-sqrt(6 / inputs), which keeps the scale of activations in a network of ReLUs (He et al.,
 * 2015). The default of `Linear` and `Conv2d`.
 */
export function heUniform(): Initializer {
  return (parameter) => uniform(Math.sqrt(6 / fans(parameter.shape).inputs))(parameter)
}

/** Uniform in +-sqrt(6 / (inputs + outputs)), for layers before a tanh (Glorot & Bengio, 2010). */
export function xavierUniform(): Initializer {
  return (parameter) => {
    const { inputs, outputs } = fans(parameter.shape)
    return uniform(Math.sqrt(6 / (inputs + outputs)))(parameter)
  }
}

function drawn(draw: (next: Generator) => number): Initializer {
  return ({ name, shape, seed }) => {
    const next = generator(name, seed)
    return Float32Array.from({ length: sizeOf(shape) }, () => draw(next))
  }
}

/** Fan-in and fan-out of a weight: the inputs of each output, and the outputs of each input. */
function fans(shape: readonly number[]): { inputs: number; outputs: number } {
  const window = sizeOf(shape.slice(0, -2))
  const [inputs, outputs] = [shape.at(-2) ?? 1, shape.at(-1) ?? 1]
  return { inputs: window * inputs, outputs: window * outputs }
}

function sizeOf(shape: readonly number[]): number {
  return shape.reduce((product, length) => product * length, 1)
}
