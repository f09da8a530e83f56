import type { ProcessGroup } from '@tsrun/distributed'
import type { Tensor } from '@tensorflow/tfjs-core'
import { withLazyGradients } from '../../autograd/tape.ts'
import type { LocalSegment, Segment } from '../../model/segment.ts'
import { tf } from '../../backend/tfjs.ts'
import type { JointLinear } from '../../nn/joint-linear.ts'
import type { Linear } from '../../nn/linear.ts'
import type { Module } from '../../model/module.ts'
import type { Parameter } from '../../model/parameter.ts'
import { markPartial } from '../../nn/partial-scores.ts'
import { onRows } from '../../nn/project.ts'
import { sum } from './collectives.ts'
import { exchange, through, type LayerSegment } from './exchange.ts'
import { copyToRanks, operations } from './operations.ts'
import { inOnePiece } from './segments.ts'
import { shardOf } from './shard.ts'
import { transferWhile } from './transfer.ts'

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
    return through(this.#describe('in one piece'), x)
  }

  segments(): readonly Segment[] {
    return this.#describe('cut')
  }

  /**
   * In one piece, the gradient of the input is summed while that of the weight is computed: what is in
   * front of the product when the layer is cut is a part of it then.
   */
  #describe(form: 'in one piece' | 'cut'): readonly LayerSegment[] {
    const { group, name } = this.#place
    const isSequence = this.input === 'sequence'
    // a gather of sequences, or of the layer before, sums it as well
    const isSummed = this.isBehindPartial || isSequence
    const isCopied = !isSummed && form === 'cut'
    const product = isSummed || isCopied ? multiply : multiplyAndSum
    const local: LocalSegment = {
      parameters: this.parameters,
      forward: (x) => onRows(x, (rows) => this.#compute(rows, product)),
    }
    return [
      ...(isSequence ? [exchange(operations.gatherSequence, group, `${name}: input`)] : []),
      ...(isCopied ? [exchange(operations.copyToRanks, group, name, gradientLabel(name))] : []),
      ...(this.gather === 'none'
        ? [{ ...local, forward: (x: Tensor) => markPartial(local.forward(x)) }]
        : [local, exchange(operations[GATHERS[this.gather]], group, `${name}: output`)]),
    ]
  }

  #compute(x: Tensor, product: typeof multiplyAndSum): Tensor {
    const weight = tf.reshape(this.#weight.value, [this.#weight.shape[0]!, -1])
    const bias = tf.reshape(this.#bias.value, [-1])
    const y = tf.add(product(x, weight, this.#place), bias)
    return this.#activation === 'relu' ? tf.relu(y) : y
  }
}

const GATHERS = { replicated: 'gatherReplicated', partial: 'gatherPartial' } as const

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
    return through(this.#describe(), x)
  }

  segments(): readonly Segment[] {
    // the gradient of its bias is summed as well, inside of a pass
    if (this.#options.output === 'sequence') return inOnePiece(this, this.#place.name)
    return this.#describe()
  }

  #describe(): readonly LayerSegment[] {
    const { input = 'sharded', output = 'replicated' } = this.#options
    const { group, name } = this.#place
    const isSequence = output === 'sequence'
    const leave = isSequence ? operations.scatterSequence : operations.sumOverRanks
    const product: LocalSegment = {
      parameters: [this.#weight],
      forward: (x) => onRows(x, (rows) => tf.matMul(rows, this.#weight.value)),
    }
    const shift: LocalSegment = {
      parameters: [this.#bias],
      forward: (x) => {
        const bias = this.#bias.value
        // each rank sees the bias at its positions only
        const seen = isSequence ? copyToRanks(bias, group, `${name}.bias`) : bias
        const y = tf.add(x, seen)
        return this.#activation === 'relu' ? tf.relu(y) : y
      },
    }
    return [
      ...(input === 'sharded'
        ? []
        : [exchange(operations.scatterToRanks, group, `${name}: input`)]),
      product,
      exchange(leave, group, `${name}: output`),
      shift,
    ]
  }
}

const gradientLabel = (name: string): string => `${name}: gradient of the input`

const multiply = (x: Tensor, w: Tensor): Tensor => tf.matMul(x, w)

/**
 * x W, whose gradient for x is summed over the ranks while that for W is computed; nothing is sent
 * where nobody wants the gradient for x.
 */
function multiplyAndSum(x: Tensor, w: Tensor, { group, name }: SharedPlace): Tensor {
  const label = gradientLabel(name)
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
            const { value, result } = transferWhile(sum, part, group, label, ofWeight)
            early = result
            return value
          },
          // tf.grads has freed it
          w: () => (early === undefined || early.isDisposed ? ofWeight() : early),
        }
      },
    },
  )
}
