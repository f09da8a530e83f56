import type { Tensor } from '@tensorflow/tfjs-core'
import { tf } from '../backend/tfjs.ts'
import { CausalSelfAttention, type AttentionOptions } from './attention.ts'
import { LayerNorm } from './layer-norm.ts'
import { FeedForward } from './mlp.ts'
import { parametersOf, type Module } from '../model/module.ts'
import type { Parameter } from '../model/parameter.ts'

/**
 * A transformer block as in GPT-2: attention and a feed-forward network, each behind a LayerNorm and
 * added to what comes in.
 */
export class Block implements Module {
  readonly children: Record<'ln_1' | 'attn' | 'ln_2' | 'mlp', Module>

  constructor(options: AttentionOptions) {
    const { name, width } = options
    this.children = {
      ln_1: new LayerNorm({ name: `${name}.ln_1`, width }),
      attn: new CausalSelfAttention({ ...options, name: `${name}.attn` }),
      ln_2: new LayerNorm({ name: `${name}.ln_2`, width }),
      mlp: new FeedForward({ ...options, name: `${name}.mlp` }),
    }
  }

  get parameters(): readonly Parameter[] {
    return parametersOf(this.children)
  }

  /** @param x - [batch, length, width] */
  forward(x: Tensor): Tensor {
    const { ln_1: before, attn, ln_2: between, mlp } = this.children
    const seen = tf.add(x, attn.forward(before.forward(x)))
    return tf.add(seen, mlp.forward(between.forward(seen)))
  }
}
