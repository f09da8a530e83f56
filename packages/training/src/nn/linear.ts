import { choice, count, declareOptions, flag, finite, where, type Rules } from '@tsrun/core'
import { fusedPasses, withLazyGradients } from '../autograd/tape.ts'
import { ofKind, type Module } from '../model/module.ts'
import { remembered, type Operation } from '../model/operation.ts'
import type { Parameter } from '../model/parameter.ts'
import { checkInput, type Recording, type RecordOptions } from '../model/recording.ts'
import type { LinearOperands } from '../tfjs/backend.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'
import { activate, activations, gates, type Activation } from './activations.ts'
import { heUniform, uniform, zeros } from './init.ts'
import { createParameter } from './initialize.ts'
import { recordLayers } from './record-layers.ts'

/** Options of `Linear`. */
export interface LinearOptions {
  /** The prefix of the names of the parameters: `<name>.weight`, `<name>.bias`. */
  readonly name: string
  readonly inputs: number
  readonly outputs: number
  /** The activation function of the output; default `linear`, the identity. */
  readonly activation?: Activation
  /** Whether to add a bias; default true. */
  readonly bias?: boolean
  /** The seed of the initial values, which also depend on the names of the parameters; default 0. */
  readonly seed?: number
  /** The standard deviation of the initial weights; default sqrt(2 / inputs) (He et al., 2015). */
  readonly deviation?: number
}

const readOptions = declareOptions({
  name: where<string>(
    (value) => typeof value === 'string',
    'the prefix of the names of its parameters, as in layers.0',
  ),
  inputs: count({ from: 1 }),
  outputs: count({ from: 1 }),
  activation: choice(...activations).default('linear'),
  bias: flag.default(true),
  seed: finite().default(0),
  deviation: finite().optional(),
} satisfies Rules<LinearOptions>)

/**
 * y = activation(x W + b). The weight W [inputs, outputs] is initialized He uniform, and the bias b
 * [outputs] with zeros. `bias: false` omits b.
 *
 * @throws ERR_TSR_ARGUMENT
 */
export class Linear implements Module {
  readonly kind = 'linear'
  readonly weight: Parameter
  readonly bias: Parameter | undefined
  readonly activation: Activation

  constructor(options: LinearOptions) {
    const { name, inputs, outputs, activation, bias, seed, deviation } = readOptions(options)
    const values = deviation === undefined ? heUniform() : uniform(Math.sqrt(3) * deviation)
    this.weight = createParameter(`${name}.weight`, [inputs, outputs], values, seed)
    this.bias = bias ? createParameter(`${name}.bias`, [outputs], zeros) : undefined
    this.activation = activation
  }

  get parameters(): readonly Parameter[] {
    return this.bias === undefined ? [this.weight] : [this.weight, this.bias]
  }

  isRepeatable(): boolean {
    return true
  }

  /**
   * @param x - [..., inputs]
   * @throws ERR_TSR_ARGUMENT for other inputs
   */
  forward(x: Tensor): Tensor {
    const { weight, bias, activation } = this
    checkInput(x, weight, ['...', weight.shape[0]!])
    if (bias === undefined) {
      return activate(
        activation,
        onRows(x, (rows) => tf.matMul(rows, weight.value)),
      )
    }
    const operands = { x, weight: weight.value, bias: bias.value }
    if (activation === 'relu') return linear(operands, activation)
    return activate(activation, linear(operands))
  }

  operations(): readonly Operation[] | undefined {
    const { weight, bias, activation } = this
    return bias && linearOperations(weight, bias, activation)
  }

  record(x: Tensor, options: RecordOptions): Recording {
    return recordLayers(this, [this], x, options)
  }
}

/** Whether a module is a `Linear` whose parameters tensor parallelism has not split. */
export const isLinear = ofKind<Linear>('linear')

export interface JointLinearOptions {
  /** The prefix of the names of the parameters: `<name>.weight`, `<name>.bias`. */
  readonly name: string
  readonly inputs: number
  /** The number of joined layers. All have the same input. */
  readonly parts: number
  /** The number of outputs of each joined layer. */
  readonly outputs: number
  /** The size of a head. Tensor parallelism splits the outputs of each joined layer between heads. */
  readonly grain: number
  readonly seed: number
  readonly deviation: number
}

/**
 * Several linear layers with the same input, computed by one matrix product, for example queries,
 * keys and values. They have W [inputs, parts, outputs] and b [parts, outputs]. In memory, W is the
 * matrix [inputs, parts x outputs]. The separate axis allows splitting all parts in the same way.
 */
export class JointLinear implements Module {
  readonly kind = 'joint-linear'
  readonly activation = 'linear'
  readonly weight: Parameter
  readonly bias: Parameter
  readonly grain: number

  constructor({ name, inputs, parts, outputs, grain, seed, deviation }: JointLinearOptions) {
    const values = uniform(Math.sqrt(3) * deviation)
    this.weight = createParameter(`${name}.weight`, [inputs, parts, outputs], values, seed)
    this.bias = createParameter(`${name}.bias`, [parts, outputs], zeros)
    this.grain = grain
  }

  get parameters(): readonly Parameter[] {
    return [this.weight, this.bias]
  }

  isRepeatable(): boolean {
    return true
  }

  operations(): readonly Operation[] | undefined {
    return linearOperations(this.weight, this.bias, 'linear')
  }

  /**
   * @param x - [..., inputs]
   * @returns [..., parts x outputs]
   * @throws ERR_TSR_ARGUMENT for other inputs
   */
  forward(x: Tensor): Tensor {
    const { weight, bias } = this
    checkInput(x, weight, ['...', weight.shape[0]!])
    return linear({ x, weight: weight.value, bias: bias.value })
  }
}

const linearOperations = remembered(
  (weight: Parameter, bias: Parameter, activation: Activation): Operation[] | undefined => {
    const layer = { type: 'linear', weight, bias } as const
    if (activation === 'linear' || activation === 'relu') return [{ ...layer, activation }]
    if (activation !== 'gelu' && activation !== 'silu') return undefined
    return [{ ...layer, activation: 'linear' }, gates[activation]]
  },
)

/** x W + b [..., outputs] */
function linear(operands: LinearOperands, activation: 'linear' | 'relu' = 'linear'): Tensor {
  const { x, weight, bias } = operands
  // The kernels need at least one row.
  const pass = x.size === 0 ? undefined : fusedPasses().linear
  if (pass !== undefined) return withLazyGradients(operands, pass(operands, activation === 'relu'))
  return onRows(x, (a) =>
    tf.fused.matMul({
      a,
      b: weight.rank === 2 ? weight : tf.reshape(weight, [weight.shape[0], -1]),
      bias: bias.rank === 1 ? bias : tf.reshape(bias, [-1]),
      activation,
    }),
  )
}

/** Applies a function of matrices to a tensor of any rank, by flattening all axes but the last axis. */
export function onRows(x: Tensor, compute: (rows: Tensor) => Tensor): Tensor {
  if (x.rank === 2) return compute(x)
  const y = compute(tf.reshape(x, [-1, x.shape.at(-1)!]))
  return tf.reshape(y, [...x.shape.slice(0, -1), y.shape.at(-1)!])
}
