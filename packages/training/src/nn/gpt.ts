import { anything, count, declareOptions, flag, number, tsrError, type Rules } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { parametersOf, type Module } from '../model/module.ts'
import type { Parameter } from '../model/parameter.ts'
import { Embedding, Head, PositionEmbedding, tableParameter } from './embedding.ts'
import { LayerNorm } from './layer-norm.ts'
import { checkRange } from './initialize.ts'
import { Block } from './transformer-block.ts'

export interface GPTOptions {
  /** The number of different tokens; default 256, for bytes. */
  readonly vocabulary?: number
  /** The largest number of tokens in a sequence; default 64. */
  readonly block?: number
  /** The number of transformer blocks; default 4. */
  readonly layers?: number
  /** The number of attention heads, a divisor of `width`; default 4. */
  readonly heads?: number
  /** The number of values for each token between the blocks; default 128. */
  readonly width?: number
  /** Whether the last layer shares the table of the embedding, as in GPT-2; default false. */
  readonly tied?: boolean
  /** Initial values depend only on it and on the names of the parameters; default 0. */
  readonly seed?: number
  /** Builds only the blocks [from, to); default all. */
  readonly range?: readonly [from: number, to: number]
}

const readOptions = declareOptions({
  vocabulary: count({ from: 1 }).default(256),
  block: count({ from: 1 }).default(64),
  layers: count({ from: 1 }).default(4),
  heads: count({ from: 1 }).default(4),
  width: count({ from: 1 }).default(128),
  tied: flag().default(false),
  seed: number().default(0),
  range: anything<readonly [number, number]>(),
} satisfies Rules<GPTOptions>)

/** The standard deviation of the initial weights. */
const DEVIATION = 0.02

/**
 * A GPT like GPT-2 (Radford et al., 2019) that can be built in parts. The part with the first block also
 * has the embeddings of tokens and positions, the part with the last block a LayerNorm and the layer
 * that computes the scores of the next token.
 *
 * The parameters have the names of the files of GPT-2: `wte.weight`, `wpe.weight`, `h.<i>.ln_1.weight`,
 * `h.<i>.attn.c_attn.weight`, `h.<i>.attn.c_proj.weight`, `h.<i>.ln_2.weight`, `h.<i>.mlp.c_fc.weight`,
 * `h.<i>.mlp.c_proj.weight`, `ln_f.weight`, most with a bias, and `lm_head.weight` unless tied. Two
 * have the same values in another shape: `c_attn.weight` is [width, 3, width] instead of [width,
 * 3 width], and its bias likewise. With tied weights, the parts with the first and the last block have
 * a `wte.weight` each, whose gradients have to be summed.
 *
 * The initial weights are uniform, with standard deviation 0.02; for those that lead back to the
 * residual stream, 0.02 / sqrt(2 layers).
 *
 * @throws ERR_TSR_ARGUMENT when a size or the range is invalid, or for an unknown option
 */
export class GPT implements Module {
  readonly children: Record<string, Module>
  readonly range: readonly [from: number, to: number]

  constructor(options: GPTOptions = {}) {
    const complete = readOptions(options)
    const { vocabulary, block, layers, heads, width, tied, seed } = complete
    if (width % heads !== 0) {
      const expected = `a multiple of the ${String(heads)} heads`
      throw tsrError('ERR_TSR_ARGUMENT', { name: 'width', value: width, expected })
    }
    const [from, to] = checkRange(complete.range, layers)
    this.range = [from, to]
    this.children = {}
    let table: Parameter | undefined
    if (from === 0) {
      const tokens = new Embedding({ name: 'wte', count: vocabulary, width, seed })
      table = tokens.weight
      this.children['wte'] = tokens
      this.children['wpe'] = new PositionEmbedding({ name: 'wpe', count: block, width, seed })
    }
    for (let i = from; i < to; i++) {
      const outputDeviation = DEVIATION / Math.sqrt(2 * layers)
      const name = `h.${String(i)}`
      const deviation = DEVIATION
      this.children[name] = new Block({ name, width, heads, seed, deviation, outputDeviation })
    }
    if (to === layers) {
      this.children['ln_f'] = new LayerNorm({ name: 'ln_f', width })
      const name = tied ? 'wte.weight' : 'lm_head.weight'
      const own = tied ? table : undefined
      this.children['lm_head'] = new Head(
        own ?? tableParameter(name, [vocabulary, width], seed, DEVIATION),
      )
    }
  }

  get layers(): readonly Module[] {
    return Object.values(this.children)
  }

  get parameters(): readonly Parameter[] {
    return parametersOf(this.children)
  }

  /**
   * @param x - int32 [batch, length] tokens, or [batch, length, width] for a part without the first block
   * @returns the scores of the next token, [batch, length, vocabulary], or [batch, length, width] for a
   *   part without the last block
   */
  forward(x: Tensor): Tensor {
    return this.layers.reduce((h, child) => child.forward(h), x)
  }
}

/**
 * A recipe for a `GPT`, for `pipeline`. It allocates nothing until the whole model or a slice is built.
 *
 * @throws ERR_TSR_ARGUMENT for an invalid or unknown option
 */
export function gpt(options: Omit<GPTOptions, 'range'> = {}) {
  const { layers } = readOptions(options)
  return {
    layers,
    build: () => new GPT(options),
    slice: (from: number, to: number) => new GPT({ ...options, range: [from, to] }),
  }
}
