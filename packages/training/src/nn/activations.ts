import { fusedPasses, withGradients } from '../autograd/tape.ts'
import type { Module } from '../model/module.ts'
import type { Operation } from '../model/operation.ts'
import type { Parameter } from '../model/parameter.ts'
import type { Differentiable } from '../tfjs/backend.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'

const SLOPE = 2 * Math.sqrt(2 / Math.PI)
/** The activations x sigmoid(linear x + cubic x^3). */
export const gates = {
  gelu: { type: 'gate', linear: SLOPE, cubic: SLOPE * 0.044715 },
  silu: { type: 'gate', linear: 1, cubic: 0 },
} as const satisfies Record<string, Operation>

/**
 * GELU(x) = x times the standard normal distribution function of x (Hendrycks & Gimpel, 2016), in
 * the approximation of GPT-2: x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
 */
export function gelu(x: Tensor): Tensor {
  const pass = fusedPasses().gate ?? plainGate
  const { linear, cubic } = gates.gelu
  return withGradients([x], (input) => pass(input, linear, cubic))
}

function plainGate(x: Tensor, linear: number, cubic: number): Differentiable {
  const gate = tf.sigmoid(tf.mul(x, tf.add(tf.mul(tf.square(x), cubic), linear)))
  return {
    value: tf.mul(x, gate),
    saved: [x, gate],
    gradients(dy, saved) {
      const [x, gate] = saved as [Tensor, Tensor]
      const slope = tf.add(tf.mul(tf.square(x), 3 * cubic), linear)
      const bend = tf.mul(tf.mul(x, slope), tf.mul(gate, tf.sub(1, gate)))
      return [tf.mul(dy, tf.add(gate, bend))]
    },
  }
}

/** x sigmoid(x), also called swish (Elfwing et al., 2017) */
export function silu(x: Tensor): Tensor {
  const { gate } = fusedPasses()
  if (gate === undefined) return tf.mul(x, tf.sigmoid(x))
  return withGradients([x], (input) => gate(input, 1, 0))
}

const functions = {
  linear: (x: Tensor) => x,
  relu: tf.relu,
  gelu,
  silu,
  tanh: tf.tanh,
  sigmoid: tf.sigmoid,
} as const

/** A function of each value. `linear` is the identity; `gelu` is the approximation of GPT-2. */
export type Activation = keyof typeof functions

export const activations = Object.keys(functions) as readonly Activation[]

export function activate(activation: Activation, x: Tensor): Tensor {
  return functions[activation](x)
}

/** A module without parameters that applies a function to each value. */
abstract class Elementwise implements Module {
  readonly parameters: readonly Parameter[] = []
  protected abstract readonly activation: Activation

  isRepeatable(): boolean {
    return true
  }

  /** @param x - of any shape */
  forward(x: Tensor): Tensor {
    return activate(this.activation, x)
  }
}

/** max(x, 0) */
export class ReLU extends Elementwise {
  protected readonly activation = 'relu'
}

/** The module of {@link gelu}. */
export class GELU extends Elementwise {
  protected readonly activation = 'gelu'
}

/** The module of {@link silu}. */
export class SiLU extends Elementwise {
  protected readonly activation = 'silu'
}

/** The hyperbolic tangent. */
export class Tanh extends Elementwise {
  protected readonly activation = 'tanh'
}

/** 1 / (1 + exp(-x)) */
export class Sigmoid extends Elementwise {
  protected readonly activation = 'sigmoid'
}
