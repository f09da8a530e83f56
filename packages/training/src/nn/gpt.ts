import { refuseUnknown, shown, tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { checkFlag, checkSeed } from '../arguments.ts'
import { Block } from './block.ts'
import { Embedding, tableParameter } from './embedding.ts'
import { Head } from './head.ts'
import { LayerNorm } from './layer-norm.ts'
import { parametersOf, type Module } from '../model/module.ts'
import type { Parameter } from '../model/parameter.ts'
import { PositionEmbedding } from './positions.ts'

export interface GPTOptions {
  /** Number of different tokens; default 256, bytes. */
  readonly vocabulary?: number
  /** Most tokens of a sequence; default 64. */
  readonly block?: number
  /** Number of transformer blocks; default 4. */
  readonly layers?: number
  /** Of the attention; divides `width`. Default 4. */
  readonly heads?: number
  /** Numbers for each token between the blocks; default 128. */
  readonly width?: number
  /** Whether the last layer multiplies with the table of the embedding, as GPT-2; default false. */
  readonly tied?: boolean
  /** Initial values depend on it and on the parameters' names alone; default 0. */
  readonly seed?: number
  /** Build only the blocks [from, to); default all. */
  readonly range?: readonly [from: number, to: number]
}

const KNOWN = Object.keys({
  vocabulary: true,
  block: true,
  layers: true,
  heads: true,
  width: true,
  tied: true,
  seed: true,
  range: true,
} satisfies Record<keyof GPTOptions, true>)

const DEVIATION = 0.02

/**
 * A GPT as GPT-2 (Radford et al., 2019) that can be built in parts: embeddings of tokens and positions
 * with the first block, a LayerNorm and the scores of the next token with the last one.
 *
 * Parameters have the names of GPT-2's files: `wte.weight`, `wpe.weight`, `h.<i>.ln_1.weight`,
 * `h.<i>.attn.c_attn.weight`, `h.<i>.attn.c_proj.weight`, `h.<i>.ln_2.weight`, `h.<i>.mlp.c_fc.weight`,
 * `h.<i>.mlp.c_proj.weight`, `ln_f.weight`, each with its bias, and `lm_head.weight` unless tied. Two
 * have another shape of the same numbers: `c_attn.weight` [width, 3, width] for [width, 3 width], and
 * its bias. With tied weights, parts that hold the first and the last block have one `wte.weight`
 * each, whose gradients have to be summed.
 *
 * Weights are uniform at first, of deviation 0.02, and those that lead back to the residual stream of
 * 0.02 / sqrt(2 layers).
 *
 * @throws ERR_TSR_ARGUMENT when a size or the range is impossible, or for an unknown option
 */
export class GPT implements Module {
  readonly children: Record<string, Module>
  readonly range: readonly [from: number, to: number]

  constructor(options: GPTOptions = {}) {
    refuseUnknown(options, KNOWN)
    const sizes = checkSizes(options)
    const { vocabulary, block, layers, heads, width } = sizes
    const { seed = 0, tied = false } = options
    checkSeed(seed)
    checkFlag('tied', tied)
    const [from, to] = checkRange(options.range ?? [0, layers], layers)
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
   * @param x - int32 [batch, length] tokens, or [batch, length, width] for a part that starts later
   * @returns scores of the next token [batch, length, vocabulary], or [batch, length, width]
   */
  forward(x: Tensor): Tensor {
    return this.layers.reduce((h, child) => child.forward(h), x)
  }
}

/**
 * A recipe for a `GPT`, for `pipeline`: allocates nothing until the whole or a slice is built.
 *
 * @throws ERR_TSR_ARGUMENT for an unknown option
 */
export function gpt(options: Omit<GPTOptions, 'range'> = {}) {
  refuseUnknown(options, KNOWN)
  return {
    layers: options.layers ?? 4,
    build: () => new GPT(options),
    slice: (from: number, to: number) => new GPT({ ...options, range: [from, to] }),
  }
}

function checkSizes(options: GPTOptions) {
  const { vocabulary = 256, block = 64, layers = 4, heads = 4, width = 128 } = options
  const sizes = { vocabulary, block, layers, heads, width }
  for (const [name, value] of Object.entries(sizes)) {
    if (!(Number.isSafeInteger(value) && value > 0)) {
      throw tsrError('ERR_TSR_ARGUMENT', {
        name,
        value: shown(value),
        expected: 'a positive integer',
      })
    }
  }
  if (width % heads !== 0) {
    const expected = `a multiple of the ${String(heads)} heads`
    throw tsrError('ERR_TSR_ARGUMENT', { name: 'width', value: width, expected })
  }
  return sizes
}

function checkRange([from, to]: readonly [number, number], layers: number) {
  const isPart = Number.isInteger(from) && Number.isInteger(to) && 0 <= from && to <= layers
  if (isPart && from < to) return [from, to] as const
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'range',
    value: `[${String(from)}, ${String(to)})`,
    expected: `a part of [0, ${String(layers)})`,
  })
}
