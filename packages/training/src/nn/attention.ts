import type { Tensor } from '@tensorflow/tfjs-core'
import { tf } from '../backend/tfjs.ts'
import { causalAttention, type AttentionCore } from './causal-attention.ts'
import { joinHeads, splitHeads } from './heads.ts'
import { JointLinear } from './joint-linear.ts'
import { Linear } from './linear.ts'
import { parametersOf, type Module } from '../model/module.ts'
import type { Parameter } from '../model/parameter.ts'

export interface AttentionOptions {
  /** Prefix of the parameters' names: `<name>.c_attn.weight` and so on. */
  readonly name: string
  readonly width: number
  /** Divides the width. */
  readonly heads: number
  readonly seed?: number
  /** Of the initial weights; default 0.02. */
  readonly deviation?: number
  /** Of those that lead back to the residual stream; default `deviation`. */
  readonly outputDeviation?: number
}

/**
 * Causal self-attention with several heads, with the names of GPT-2: `c_attn` makes queries, keys and
 * values, `c_proj` leads back.
 */
export class CausalSelfAttention implements Module {
  readonly kind = 'attention'
  readonly children: Record<'c_attn' | 'c_proj', Module>
  /** Another one where ranks share the sequence. */
  core: AttentionCore = causalAttention
  readonly #headSize: number

  constructor(options: AttentionOptions) {
    const { name, width, heads, seed = 0, deviation = 0.02, outputDeviation = deviation } = options
    this.#headSize = width / heads
    this.children = {
      c_attn: new JointLinear({
        name: `${name}.c_attn`,
        inputs: width,
        parts: 3,
        outputs: width,
        grain: this.#headSize,
        seed,
        deviation,
      }),
      c_proj: new Linear({
        name: `${name}.c_proj`,
        inputs: width,
        outputs: width,
        seed,
        deviation: outputDeviation,
      }),
    }
  }

  get parameters(): readonly Parameter[] {
    return parametersOf(this.children)
  }

  /** @param x - [batch, length, width] */
  forward(x: Tensor): Tensor {
    const { c_attn: joint, c_proj: back } = this.children
    return back.forward(seeThrough(joint.forward(x), this.#headSize, this.core))
  }
}

/** From [batch, length, 3 x heads x size] to [batch, length, heads x size], whichever heads these are. */
function seeThrough(rows: Tensor, size: number, core: AttentionCore): Tensor {
  return tf.customGrad((...args) => {
    const [input, save] = args as unknown as [Tensor, (tensors: Tensor[]) => void]
    const [q, k, v] = splitHeads(input, 3, size) as [Tensor, Tensor, Tensor]
    const { output, saved } = core.forward(q, k, v)
    save(saved)
    return {
      value: joinHeads([output]),
      gradFunc: (dy: Tensor, tensors: Tensor[]) => {
        const [seen] = splitHeads(dy, 1, size) as [Tensor]
        return joinHeads(core.backward(seen, tensors))
      },
    }
  })(rows)
}
