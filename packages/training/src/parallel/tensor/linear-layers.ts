import type { ProcessGroup } from '@tsrun/distributed'
import { withLazyGradients } from '../../autograd/tape.ts'
import { ofKind, type Module } from '../../model/module.ts'
import type { Parameter } from '../../model/parameter.ts'
import type { LocalSegment, Segment } from '../../model/segment.ts'
import { activate } from '../../nn/activations.ts'
import { markPartial } from '../../nn/cross-entropy.ts'
import { onRows, type JointLinear, type Linear } from '../../nn/linear.ts'
import { tf, type Tensor } from '../../tfjs/tfjs.ts'
import { runWhile, sum } from './collectives.ts'
import { copyToRanks, exchange, operations, through, type LayerSegment } from './operations.ts'
import { inOnePiece } from './record-segments.ts'
import { shardOf } from './sharding.ts'

/** Options of `columnParallel`. */
export interface ColumnParallelOptions {
  /**
   * Whether the output columns of all ranks are gathered: `none` (default) leaves them sharded. Use
   * `partial` if a columnParallel() layer follows directly, and `replicated` before any other
   * layer. See `gatherPartial` and `gatherReplicated`.
   */
  readonly gather?: 'none' | 'replicated' | 'partial'
  /**
   * The layer's input: the whole input on every rank (`replicated`, default), or this rank's part
   * of each sequence (`sequence`).
   */
  readonly input?: 'replicated' | 'sequence'
}

export interface LayerContext {
  /** The name of the layer, for error messages. */
  readonly name: string
  readonly group: ProcessGroup
}

/**
 * A column parallel linear layer: each rank computes some of the outputs, with the columns [inputs,
 * ..., outputs / size] of the weight.
 */
export class ColumnParallelLinear implements Module {
  readonly kind = 'column-parallel'
  readonly parameters: readonly Parameter[]
  readonly gather: 'none' | 'replicated' | 'partial'
  readonly input: 'replicated' | 'sequence'
  /**
   * Whether the previous layer gathers its output with `partial`, and so sums this layer's input
   * gradient.
   */
  isBehindPartial = false
  readonly #weight: Parameter
  readonly #bias: Parameter | undefined
  readonly #activation: Linear['activation']
  readonly #context: LayerContext

  constructor(
    layer: Linear | JointLinear,
    context: LayerContext,
    { gather, input }: Required<ColumnParallelOptions>,
  ) {
    const { group } = context
    this.#context = context
    this.gather = gather
    this.input = input
    this.#activation = 'activation' in layer ? layer.activation : 'linear'
    const grain = 'grain' in layer ? layer.grain : 1
    const { weight, bias } = layer
    this.#weight = shardOf(weight, group, weight.shape.length - 1, { grain })
    this.#bias = bias && shardOf(bias, group, bias.shape.length - 1, { grain })
    this.parameters = present(this.#weight, this.#bias)
  }

  /**
   * @param x - [..., inputs], the same on all ranks; or, with `sequence`, [batch, length / size,
   *   inputs]
   */
  forward(x: Tensor): Tensor {
    return through(this.#describe('in one piece'), x)
  }

  segments(): readonly Segment[] {
    return this.#describe('cut')
  }

  /**
   * Returns the segments of the layer. In one piece, the input gradient is summed over the ranks
   * while the weight gradient is computed. If the layer is cut, this sum is a separate segment
   * before the product.
   */
  #describe(form: 'in one piece' | 'cut'): readonly LayerSegment[] {
    const { group, name } = this.#context
    const isSequence = this.input === 'sequence'
    // A gather of sequences already sums the input gradient. So does a previous layer that gathers with
    // `partial`.
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
    const y = product(x, weight, this.#context)
    const shifted = this.#bias ? tf.add(y, tf.reshape(this.#bias.value, [-1])) : y
    return activate(this.#activation, shifted)
  }
}

function present(...parameters: readonly (Parameter | undefined)[]): readonly Parameter[] {
  return parameters.filter((parameter) => parameter !== undefined)
}

const GATHERS = { replicated: 'gatherReplicated', partial: 'gatherPartial' } as const

export const isColumnParallel = ofKind<ColumnParallelLinear>('column-parallel')

/** Options of `rowParallel`. */
export interface RowParallelOptions {
  /**
   * The layer's input: this rank's columns (`sharded`, default), or the whole input, which the
   * layer slices (`replicated`).
   */
  readonly input?: 'sharded' | 'replicated'
  /**
   * The layer's output: the whole output on every rank (`replicated`, default), or this rank's part
   * of each sequence (`sequence`).
   */
  readonly output?: 'replicated' | 'sequence'
}

/**
 * A row parallel linear layer: each rank multiplies some of the inputs with the rows [inputs /
 * size, outputs] of the weight. The products are summed over the ranks.
 */
export class RowParallelLinear implements Module {
  readonly parameters: readonly Parameter[]
  readonly #weight: Parameter
  /** The bias, the same on all ranks. It is added after the products are summed. */
  readonly #bias: Parameter | undefined
  readonly #activation: Linear['activation']
  readonly #context: LayerContext
  readonly #options: Required<RowParallelOptions>

  constructor(layer: Linear, context: LayerContext, options: Required<RowParallelOptions>) {
    this.#context = context
    this.#options = options
    this.#activation = layer.activation
    this.#weight = shardOf(layer.weight, context.group, 0)
    this.#bias = layer.bias
    this.parameters = present(this.#weight, this.#bias)
  }

  /** @param x - [..., inputs / size]; or, with `replicated`, [..., inputs] */
  forward(x: Tensor): Tensor {
    return through(this.#describe(), x)
  }

  segments(): readonly Segment[] {
    // The gradient of the bias is summed inside the pass, so the layer cannot be cut into segments.
    if (this.#options.output === 'sequence') return inOnePiece(this, this.#context.name)
    return this.#describe()
  }

  #describe(): readonly LayerSegment[] {
    const { input, output } = this.#options
    const { group, name } = this.#context
    const isSequence = output === 'sequence'
    const leave = isSequence ? operations.scatterSequence : operations.sumOverRanks
    const product: LocalSegment = {
      parameters: [this.#weight],
      forward: (x) => onRows(x, (rows) => tf.matMul(rows, this.#weight.value)),
    }
    const shift: LocalSegment = {
      parameters: present(this.#bias),
      forward: (x) => {
        const bias = this.#bias?.value
        if (bias === undefined) return activate(this.#activation, x)
        // Each rank adds the bias only at its own positions, so the gradient of the bias must be summed
        // over the ranks.
        const seen = isSequence ? copyToRanks(bias, group, `${name}.bias`) : bias
        return activate(this.#activation, tf.add(x, seen))
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
 * Computes x W. In the backward pass, the gradient of x is summed over the ranks while the gradient
 * of W is computed. If the gradient of x is not needed, nothing is sent.
 */
function multiplyAndSum(x: Tensor, w: Tensor, { group, name }: LayerContext): Tensor {
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
            const { value, result } = runWhile(sum, part, group, label, ofWeight)
            early = result
            return value
          },
          // tf.grads may have disposed the gradient that was computed early. In that case, compute it
          // again.
          w: () => (early === undefined || early.isDisposed ? ofWeight() : early),
        }
      },
    },
  )
}
