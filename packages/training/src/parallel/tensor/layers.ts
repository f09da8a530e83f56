import { tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import type { Tensor } from '@tensorflow/tfjs-core'
import { tensorFrom, viewOf } from '../../backend/host-memory.ts'
import { sizeOf } from '../../backend/shape.ts'
import { tf } from '../../backend/tensorflow.ts'
import type { Linear } from '../../nn/linear.ts'
import type { Module } from '../../nn/module.ts'
import type { Parameter } from '../../nn/parameter.ts'
import { startSum } from './collectives.ts'
import { gatherPartial, gatherReplicated, scatterToRanks, sumOverRanks } from './operations.ts'

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
}

/** Each rank has some of a layer's outputs: columns of the weight [inputs, outputs / size]. */
export class ColumnParallelLinear implements Module {
  readonly parameters: readonly Parameter[]
  readonly #weight: Parameter
  readonly #bias: Parameter
  readonly #activation: Linear['activation']
  readonly #group: ProcessGroup
  readonly #options: ColumnParallelOptions

  constructor(layer: Linear, group: ProcessGroup, options: ColumnParallelOptions = {}) {
    this.#group = group
    this.#options = options
    this.#activation = layer.activation
    this.#weight = shardOf(layer.weight, group, 1)
    this.#bias = shardOf(layer.bias, group, 0)
    this.parameters = [this.#weight, this.#bias]
  }

  /** @param x - [batch, inputs], the same on all ranks */
  forward(x: Tensor): Tensor {
    const { gather = 'none', sumsInputGradient = true } = this.#options
    const group = this.#group
    const sums = sumsInputGradient && group.size > 1
    const product = sums
      ? multiplyAndSum(x, this.#weight.value, group)
      : tf.matMul(x, this.#weight.value)
    const y = activate(tf.add(product, this.#bias.value), this.#activation)
    if (gather === 'none') return y
    return gather === 'replicated' ? gatherReplicated(y, group) : gatherPartial(y, group)
  }
}

export interface RowParallelOptions {
  /** What comes in: this rank's slice (`sharded`, default), or the whole, of which it takes its slice. */
  readonly input?: 'sharded' | 'replicated'
}

/** Each rank has some of a layer's inputs: rows of the weight [inputs / size, outputs]. */
export class RowParallelLinear implements Module {
  readonly parameters: readonly Parameter[]
  readonly #weight: Parameter
  /** One logical copy: it is added behind the sum. */
  readonly #bias: Parameter
  readonly #activation: Linear['activation']
  readonly #group: ProcessGroup
  readonly #input: 'sharded' | 'replicated'

  constructor(layer: Linear, group: ProcessGroup, { input = 'sharded' }: RowParallelOptions = {}) {
    this.#group = group
    this.#input = input
    this.#activation = layer.activation
    this.#weight = shardOf(layer.weight, group, 0)
    this.#bias = layer.bias
    this.parameters = [this.#weight, this.#bias]
  }

  /** @param x - [batch, inputs / size], or with `replicated` [batch, inputs] */
  forward(x: Tensor): Tensor {
    const own = this.#input === 'sharded' ? x : scatterToRanks(x, this.#group)
    const sum = sumOverRanks(tf.matMul(own, this.#weight.value), this.#group)
    return activate(tf.add(sum, this.#bias.value), this.#activation)
  }
}

/**
 * x W, whose gradient for x is summed over the ranks while that for W is computed.
 */
function multiplyAndSum(x: Tensor, w: Tensor, group: ProcessGroup): Tensor {
  const product = tf.customGrad((...args) => {
    const [input, weight, save] = args as unknown as [Tensor, Tensor, (tensors: Tensor[]) => void]
    save([input, weight])
    return {
      value: tf.matMul(input, weight),
      gradFunc: (dy: Tensor, saved: Tensor[]) => {
        const [savedInput, savedWeight] = saved as [Tensor, Tensor]
        const part = tf.matMul(dy, savedWeight, false, true)
        const sum = startSum(part, group)
        const dw = tf.matMul(savedInput, dy, true, false)
        return [sum.finish(), dw]
      },
    }
  })
  return product(x, w)
}

function activate(x: Tensor, activation: Linear['activation']): Tensor {
  return activation === 'relu' ? tf.relu(x) : x
}

/** This rank's part of a parameter along an axis, in its place; the rest is freed. */
function shardOf(parameter: Parameter, { rank, size }: ProcessGroup, axis: number): Parameter {
  const { name, shape, value } = parameter
  if (shape[axis]! % size !== 0) {
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: `${name} of shape [${shape.join(', ')}]`,
      value: `${shape[axis]!} along axis ${axis}`,
      expected: `a multiple of the ${size} ranks that share it`,
    })
  }
  const extent = shape[axis]! / size
  const own = shape.map((whole, i) => (i === axis ? extent : whole))
  const inner = sizeOf(shape.slice(axis + 1))
  const outer = sizeOf(shape.slice(0, axis))
  const part = new Float32Array(outer * extent * inner)
  const whole = viewOf(value)
  for (let i = 0; i < outer; i++) {
    const from = (i * shape[axis]! + rank * extent) * inner
    part.set(whole.subarray(from, from + extent * inner), i * extent * inner)
  }
  value.dispose()
  const shard = { shape, axis, offset: rank * extent }
  return { name, shape: own, shard, value: tensorFrom(part, own) }
}
