import { count, declareOptions, filled, positive, type Rules } from '@tsrun/core'
import { cloneOf, withGradients } from '../autograd/tape.ts'
import { areRepeatable, operationsOf, parametersOf, type Module } from '../model/module.ts'
import { joinedOperations, remembered, type Operation } from '../model/operation.ts'
import type { Parameter } from '../model/parameter.ts'
import type { Recording, RecordOptions } from '../model/recording.ts'
import { tf, type Tensor } from '../tfjs/tfjs.ts'
import { gates, gelu } from './activations.ts'
import {
  branchRules,
  CausalSelfAttention,
  type AttentionOptions,
  type BranchOptions,
} from './attention.ts'
import { Dropout, dropoutRate } from './dropout.ts'
import { LayerNorm } from './layer-norm.ts'
import { Linear } from './linear.ts'
import { recordLayers } from './record-layers.ts'

export interface BlockOptions extends AttentionOptions {
  /** The number of hidden values of the feed-forward network; default 4 x width. */
  readonly hidden?: number
  /** A small number that is added to the variance in each LayerNorm; default 1e-5. */
  readonly epsilon?: number
  /** The dropout rate of both residual branches (attention and feed-forward) during training; default 0. */
  readonly residualDropout?: number
}

const size = count({ from: 1 })

const commonRules = {
  ...branchRules,
  name: filled('the prefix of the names of its parameters, as in h.0'),
  hidden: size.optional(),
}

const readBlock = declareOptions({
  ...commonRules,
  heads: size,
  attentionDropout: dropoutRate.default(0),
  residualDropout: dropoutRate.default(0),
  epsilon: positive().default(1e-5),
} satisfies Rules<BlockOptions>)

/**
 * A transformer block of GPT-2: attention, then a feed-forward network. Each one takes the output
 * of a LayerNorm, and its result is added to the residual stream.
 */
export class Block implements Module {
  readonly children: Record<'ln_1' | 'attn' | 'ln_2' | 'mlp', Module> &
    Partial<Record<'drop_1' | 'drop_2', Module>>

  constructor(options: BlockOptions) {
    const {
      name,
      width,
      heads,
      hidden = 4 * width,
      epsilon,
      seed,
      deviation,
      outputDeviation = deviation,
      attentionDropout,
      residualDropout: rate,
    } = readBlock(options)
    const common = { width, seed, deviation, outputDeviation }
    const drop = (key: string) => new Dropout({ name: `${name}.${key}`, rate, seed })
    this.children = {
      ln_1: new LayerNorm({ name: `${name}.ln_1`, width, epsilon }),
      attn: new CausalSelfAttention({ ...common, name: `${name}.attn`, heads, attentionDropout }),
      ln_2: new LayerNorm({ name: `${name}.ln_2`, width, epsilon }),
      mlp: new FeedForward({ ...common, name: `${name}.mlp`, hidden }),
      ...(rate > 0 && { drop_1: drop('drop_1'), drop_2: drop('drop_2') }),
    }
  }

  get parameters(): readonly Parameter[] {
    return parametersOf(this.children)
  }

  isRepeatable(): boolean {
    return areRepeatable(Object.values(this.children))
  }

  operations(): readonly Operation[] | undefined {
    const { ln_1, attn, ln_2, mlp, drop_1, drop_2 } = this.children
    if (drop_1 !== undefined || drop_2 !== undefined) return undefined
    return joinedOperations([branchOf(ln_1, attn), branchOf(ln_2, mlp)])
  }

  record(x: Tensor, options: RecordOptions): Recording {
    return recordLayers(this, [this], x, options)
  }

  /** @param x - [batch, length, width] */
  forward(x: Tensor): Tensor {
    const { ln_1: before, attn, drop_1: first, ln_2: between, mlp, drop_2: second } = this.children
    const attention = attn.forward(before.forward(x))
    const attended = addResidual(x, first?.forward(attention) ?? attention)
    const hidden = mlp.forward(between.forward(attended))
    return addResidual(attended, second?.forward(hidden) ?? hidden)
  }
}

/** The operation x + f(x) for modules f. */
function branchOf(...modules: readonly Module[]): readonly Operation[] | undefined {
  const operations = joinedOperations(modules.map(operationsOf))
  return operations && residualOf(operations)
}

const residualOf = remembered((operations: readonly Operation[]): Operation[] => [
  { type: 'residual', operations },
])

/** x + y. Unlike `tf.add`, saves no tensors for the gradients. */
function addResidual(x: Tensor, y: Tensor): Tensor {
  return withGradients([x, y], () => ({
    value: tf.add(x, y),
    saved: [],
    // Return clones of dy: tf.grad may dispose a gradient, and dy may belong to the caller.
    gradients: (dy) => [cloneOf(dy), cloneOf(dy)],
  }))
}

/** Options of `FeedForward`. */
export interface FeedForwardOptions extends BranchOptions {
  /** The prefix of the names of the parameters: `<name>.c_fc.weight` and so on. */
  readonly name: string
  /** The number of hidden values; default 4 x width. */
  readonly hidden?: number
}

const readFeedForward = declareOptions(commonRules satisfies Rules<FeedForwardOptions>)

const GATE: readonly Operation[] = [gates.gelu]

/** Two linear layers with a GELU between them. The parameters have the names of GPT-2. */
export class FeedForward implements Module {
  readonly children: Record<'c_fc' | 'c_proj', Module>

  constructor(options: FeedForwardOptions) {
    const {
      name,
      width,
      hidden = 4 * width,
      seed,
      deviation,
      outputDeviation = deviation,
    } = readFeedForward(options)
    const up = { name: `${name}.c_fc`, inputs: width, outputs: hidden, seed, deviation }
    const down = { name: `${name}.c_proj`, inputs: hidden, outputs: width, seed }
    this.children = {
      c_fc: new Linear(up),
      c_proj: new Linear({ ...down, deviation: outputDeviation }),
    }
  }

  get parameters(): readonly Parameter[] {
    return parametersOf(this.children)
  }

  isRepeatable(): boolean {
    return areRepeatable(Object.values(this.children))
  }

  operations(): readonly Operation[] | undefined {
    const { c_fc: up, c_proj: down } = this.children
    return joinedOperations([operationsOf(up), GATE, operationsOf(down)])
  }

  /** @param x - [..., width] */
  forward(x: Tensor): Tensor {
    const { c_fc: up, c_proj: down } = this.children
    return down.forward(gelu(up.forward(x)))
  }
}
