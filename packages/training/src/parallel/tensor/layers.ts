import type { ProcessGroup } from '@tsrun/distributed'
import type { Tensor } from '@tensorflow/tfjs-core'
import { tf } from '../../backend/tensorflow.ts'
import type { JointLinear } from '../../nn/joint-linear.ts'
import type { Linear } from '../../nn/linear.ts'
import type { Module } from '../../nn/module.ts'
import type { Parameter } from '../../nn/parameter.ts'
import { onRows } from '../../nn/project.ts'
import { startSum } from './collectives.ts'
import {
  copyToRanks,
  gatherPartial,
  gatherReplicated,
  gatherSequence,
  scatterSequence,
  scatterToRanks,
  sumOverRanks,
} from './operations.ts'
import { shardOf } from './shard.ts'

export interface ColumnParallelOptions {
  /**
   * What becomes of the slices of the output: they stay where they are (`none`, default), or are
   * gathered, see `gatherReplicated` and `gatherPartial`.
   */
  readonly gather?: 'none' | 'replicated' | 'partial'
  /**
   * Whether the gradient of the input is summed over the ranks (default). Not behind a layer that
   * gathers `partial`: that sums it.
   */
  readonly sumsInputGradient?: boolean
  /** What comes in: the whole (`replicated`, default), or this rank's part of each sequence. */
  readonly input?: 'replicated' | 'sequence'
}

/** Each rank has some of a layer's outputs: columns of the weight [inputs, ..., outputs / size]. */
export class ColumnParallelLinear implements Module {
  readonly parameters: readonly Parameter[]
  readonly #weight: Parameter
  readonly #bias: Parameter
  readonly #activation: Linear['activation']
  readonly #group: ProcessGroup
  readonly #options: ColumnParallelOptions

  constructor(
    layer: Linear | JointLinear,
    group: ProcessGroup,
    options: ColumnParallelOptions = {},
  ) {
    this.#group = group
    this.#options = options
    this.#activation = 'activation' in layer ? layer.activation : 'linear'
    const grain = 'grain' in layer ? layer.grain : 1
    const { weight, bias } = layer
    this.#weight = shardOf(weight, group, weight.shape.length - 1, grain)
    this.#bias = shardOf(bias, group, bias.shape.length - 1, grain)
    this.parameters = [this.#weight, this.#bias]
  }

  /** @param x - [..., inputs], the same on all ranks; or [batch, length / size, inputs] */
  forward(x: Tensor): Tensor {
    const { gather = 'none', input = 'replicated' } = this.#options
    const group = this.#group
    const whole = input === 'sequence' ? gatherSequence(x, group) : x
    const y = onRows(whole, (rows) => this.#multiply(rows))
    if (gather === 'none') return y
    return gather === 'replicated' ? gatherReplicated(y, group) : gatherPartial(y, group)
  }

  #multiply(x: Tensor): Tensor {
    const { sumsInputGradient = true, input } = this.#options
    const weight = tf.reshape(this.#weight.value, [this.#weight.shape[0]!, -1])
    const bias = tf.reshape(this.#bias.value, [-1])
    // the gather of sequences sums it
    const sums = sumsInputGradient && input !== 'sequence' && this.#group.size > 1
    const product = sums ? multiplyAndSum(x, weight, this.#group) : tf.matMul(x, weight)
    const y = tf.add(product, bias)
    return this.#activation === 'relu' ? tf.relu(y) : y
  }
}

export interface RowParallelOptions {
  /** What comes in: this rank's slice (`sharded`, default), or the whole, of which it takes its slice. */
  readonly input?: 'sharded' | 'replicated'
  /** What comes out: the whole (`replicated`, default), or this rank's part of each sequence. */
  readonly output?: 'replicated' | 'sequence'
}

/** Each rank has some of a layer's inputs: rows of the weight [inputs / size, outputs]. */
export class RowParallelLinear implements Module {
  readonly parameters: readonly Parameter[]
  readonly #weight: Parameter
  /** One logical copy: it is added behind the sum. */
  readonly #bias: Parameter
  readonly #activation: Linear['activation']
  readonly #group: ProcessGroup
  readonly #options: RowParallelOptions

  constructor(layer: Linear, group: ProcessGroup, options: RowParallelOptions = {}) {
    this.#group = group
    this.#options = options
    this.#activation = layer.activation
    this.#weight = shardOf(layer.weight, group, 0)
    this.#bias = layer.bias
    this.parameters = [this.#weight, this.#bias]
  }

  /** @param x - [..., inputs / size], or with `replicated` [..., inputs] */
  forward(x: Tensor): Tensor {
    const { input = 'sharded', output = 'replicated' } = this.#options
    const group = this.#group
    const own = input === 'sharded' ? x : scatterToRanks(x, group)
    const part = onRows(own, (rows) => tf.matMul(rows, this.#weight.value))
    const bias = this.#bias.value
    const y =
      output === 'sequence'
        ? // each rank sees the bias at its positions only
          tf.add(scatterSequence(part, group), copyToRanks(bias, group))
        : tf.add(sumOverRanks(part, group), bias)
    return this.#activation === 'relu' ? tf.relu(y) : y
  }
}

/**
 * x W, whose gradient for x is summed over the ranks while that for W is computed.
 */
function multiplyAndSum(x: Tensor, w: Tensor, group: ProcessGroup): Tensor {
  const product = tf.customGrad((...args) => {
    const [input, weight, save] = args as unknown as [Tensor, Tensor, (tensors: Tensor[]) => void]
    save([input, weight])
    let isSummed = false
    return {
      value: tf.matMul(input, weight),
      gradFunc: (dy: Tensor, saved: Tensor[]) => {
        const [savedInput, savedWeight] = saved as [Tensor, Tensor]
        // a backward pass in halves comes twice, the second time for the weight alone
        if (isSummed) return [savedInput, tf.matMul(savedInput, dy, true, false)]
        isSummed = true
        const part = tf.matMul(dy, savedWeight, false, true)
        const sum = startSum(part, group)
        const dw = tf.matMul(savedInput, dy, true, false)
        return [sum.finish(), dw]
      },
    }
  })
  return product(x, w)
}
