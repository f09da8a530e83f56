import type { ProcessGroup } from '@tsrun/distributed'
import type { Tensor } from '@tensorflow/tfjs-core'
import { withLazyGradients } from '../../autograd/lazy-gradients.ts'
import { tf } from '../../backend/tensorflow.ts'
import type { JointLinear } from '../../nn/joint-linear.ts'
import type { Linear } from '../../nn/linear.ts'
import type { Module } from '../../nn/module.ts'
import type { Parameter } from '../../nn/parameter.ts'
import { markPartial } from '../../nn/partial-scores.ts'
import { onRows } from '../../nn/project.ts'
import { sumWhile } from './collectives.ts'
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
   * gathered: `partial` directly in front of another columnParallel() layer, `replicated` in front of
   * any other. See `gatherReplicated` and `gatherPartial`.
   */
  readonly gather?: 'none' | 'replicated' | 'partial'
  /** What comes in: the whole (`replicated`, default), or this rank's part of each sequence. */
  readonly input?: 'replicated' | 'sequence'
}

/** Where a layer is: for labels, and among whom. */
export interface SharedPlace {
  readonly name: string
  readonly group: ProcessGroup
}

/** Each rank has some of a layer's outputs: columns of the weight [inputs, ..., outputs / size]. */
export class ColumnParallelLinear implements Module {
  readonly kind = 'column-parallel'
  readonly parameters: readonly Parameter[]
  readonly gather: 'none' | 'replicated' | 'partial'
  readonly input: 'replicated' | 'sequence'
  /** Whether the layer before gathers `partial`: that sums the gradient of the input. */
  isBehindPartial = false
  readonly #weight: Parameter
  readonly #bias: Parameter
  readonly #activation: Linear['activation']
  readonly #place: SharedPlace

  constructor(
    layer: Linear | JointLinear,
    place: SharedPlace,
    options: ColumnParallelOptions = {},
  ) {
    const { group } = place
    this.#place = place
    this.gather = options.gather ?? 'none'
    this.input = options.input ?? 'replicated'
    this.#activation = 'activation' in layer ? layer.activation : 'linear'
    const grain = 'grain' in layer ? layer.grain : 1
    const { weight, bias } = layer
    this.#weight = shardOf(weight, group, weight.shape.length - 1, { grain })
    this.#bias = shardOf(bias, group, bias.shape.length - 1, { grain })
    this.parameters = [this.#weight, this.#bias]
  }

  /** @param x - [..., inputs], the same on all ranks; or [batch, length / size, inputs] */
  forward(x: Tensor): Tensor {
    const { group, name } = this.#place
    const whole = this.input === 'sequence' ? gatherSequence(x, group, `${name}: input`) : x
    const y = onRows(whole, (rows) => this.#multiply(rows))
    if (this.gather === 'none') return markPartial(y)
    const gather = this.gather === 'replicated' ? gatherReplicated : gatherPartial
    return gather(y, group, `${name}: output`)
  }

  #multiply(x: Tensor): Tensor {
    const weight = tf.reshape(this.#weight.value, [this.#weight.shape[0]!, -1])
    const bias = tf.reshape(this.#bias.value, [-1])
    // a gather of sequences sums it as well
    const isSummed = this.isBehindPartial || this.input === 'sequence'
    const product = isSummed ? tf.matMul(x, weight) : multiplyAndSum(x, weight, this.#place)
    const y = tf.add(product, bias)
    return this.#activation === 'relu' ? tf.relu(y) : y
  }
}

export function isColumnParallel(module: Module): module is ColumnParallelLinear {
  return module.kind === 'column-parallel'
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
  readonly #place: SharedPlace
  readonly #options: RowParallelOptions

  constructor(layer: Linear, place: SharedPlace, options: RowParallelOptions = {}) {
    this.#place = place
    this.#options = options
    this.#activation = layer.activation
    this.#weight = shardOf(layer.weight, place.group, 0)
    this.#bias = layer.bias
    this.parameters = [this.#weight, this.#bias]
  }

  /** @param x - [..., inputs / size], or with `replicated` [..., inputs] */
  forward(x: Tensor): Tensor {
    const { input = 'sharded', output = 'replicated' } = this.#options
    const { group, name } = this.#place
    const own = input === 'sharded' ? x : scatterToRanks(x, group, `${name}: input`)
    const part = onRows(own, (rows) => tf.matMul(rows, this.#weight.value))
    const bias = this.#bias.value
    const label = `${name}: output`
    const y =
      output === 'sequence'
        ? // each rank sees the bias at its positions only
          tf.add(scatterSequence(part, group, label), copyToRanks(bias, group, `${name}.bias`))
        : tf.add(sumOverRanks(part, group, label), bias)
    return this.#activation === 'relu' ? tf.relu(y) : y
  }
}

/**
 * x W, whose gradient for x is summed over the ranks while that for W is computed; nothing is sent
 * where nobody wants the gradient for x.
 */
function multiplyAndSum(x: Tensor, w: Tensor, { group, name }: SharedPlace): Tensor {
  const label = `${name}: gradient of the input`
  return withLazyGradients(
    { x, w },
    {
      forward: () => tf.matMul(x, w),
      gradients: (dy, saved) => {
        const ofWeight = () => tf.matMul(saved.x, dy, true, false)
        let early: Tensor | undefined
        return {
          x: () => {
            const part = tf.matMul(dy, saved.w, false, true)
            const { sum, result } = sumWhile(part, group, label, ofWeight)
            early = result
            return sum
          },
          // tf.grads has freed it
          w: () => (early === undefined || early.isDisposed ? ofWeight() : early),
        }
      },
    },
  )
}
