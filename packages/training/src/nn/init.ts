import { finite } from '@tsrun/core'
import { generator, uniform as nextUniform, type Generator } from '../random/generator.ts'
import { sizeOf } from '../tfjs/host-arrays.ts'

// Initial values of parameters, exported as the namespace `init`. The generator of random values is
// seeded by the name of the parameter, so every layout starts with the same values.

/** Makes the initial values of a parameter; see `createParameter`. */
export type Initializer = (parameter: InitializedParameter) => Float32Array

/** The parameter for which an initializer makes values. */
export interface InitializedParameter {
  readonly name: string
  /**
   * [inputs, outputs] of a linear layer; [height, width, inputs, outputs] of a convolution; or
   * another shape.
   */
  readonly shape: readonly number[]
  readonly seed: number
}

/** Sets all values to `value`. @throws ERR_TSR_ARGUMENT unless `value` is a finite number */
export function constant(value: number): Initializer {
  finite().check('the value of init.constant', value)
  return ({ shape }) => new Float32Array(sizeOf(shape)).fill(value)
}

export const zeros: Initializer = constant(0)
export const ones: Initializer = constant(1)

/**
 * Draws from a uniform distribution in [-limit, limit], whose standard deviation is limit / sqrt(3).
 *
 * @throws ERR_TSR_ARGUMENT unless `limit` is a finite number
 */
export function uniform(limit: number): Initializer {
  finite().check('the limit of init.uniform', limit)
  // Callers pass 0 if they replace the values later: drawing values takes seconds for a large model.
  if (limit === 0) return zeros
  return drawn((next) => (2 * nextUniform(next) - 1) * limit)
}

/**
 * Draws from a normal distribution with mean 0 (Box & Muller, 1958). The last bits may differ
 * between versions of Node, unlike those of uniform values.
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
 * Draws from a uniform distribution in +-sqrt(6 / inputs), which preserves the scale of activations
 * in a ReLU network (He et al., 2015). The default of `Linear` and `Conv2d`.
 */
export function heUniform(): Initializer {
  return (parameter) => uniform(Math.sqrt(6 / fans(parameter.shape).inputs))(parameter)
}

/**
 * Draws from a uniform distribution in +-sqrt(6 / (inputs + outputs)), for layers before a tanh
 * (Glorot & Bengio, 2010).
 */
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

/** Returns the fan-in and fan-out of a weight: inputs per output, and outputs per input. */
function fans(shape: readonly number[]): { inputs: number; outputs: number } {
  const window = sizeOf(shape.slice(0, -2))
  const [inputs, outputs] = [shape.at(-2) ?? 1, shape.at(-1) ?? 1]
  return { inputs: window * inputs, outputs: window * outputs }
}
