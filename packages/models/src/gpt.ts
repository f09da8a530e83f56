import { anything, count, declareOptions, finite, flag, type Rules } from '@tsrun/core'
import {
  Block,
  Dropout,
  Embedding,
  LayerNorm,
  type Module,
  type Parameter,
  PositionEmbedding,
  columnParallel,
  rowParallel,
  sequenceParallel,
  vocabParallel,
  type ParallelPlan,
} from '@tsrun/training'
import {
  checkHeads,
  checkRange,
  dropoutRate,
  Head,
  ModuleChain,
  ofKind,
  tableParameter,
} from '@tsrun/training/parts'

/** Options of `gpt`. */
export interface GPTOptions {
  /** The number of tokens in the vocabulary; default 256, one per byte value. */
  readonly vocabulary?: number
  /** The largest number of tokens in a sequence; default 64. */
  readonly block?: number
  /** The number of transformer blocks; default 4. */
  readonly layers?: number
  /** The number of attention heads, a divisor of `width`; default 4. */
  readonly heads?: number
  /** The number of values per token between the blocks; default 128. */
  readonly width?: number
  /** The number of hidden values in a feed-forward network; default 4 x `width`. */
  readonly hidden?: number | undefined
  /** Whether the output head shares the table of the token embedding, as in GPT-2; default false. */
  readonly tied?: boolean
  /** A small number that each LayerNorm adds to the variance; default 1e-5. */
  readonly epsilon?: number
  /** The standard deviation of the initial weights; default 0.02. */
  readonly deviation?: number
  /** The dropout rate of the embeddings during training; default 0. */
  readonly embeddingDropout?: number
  /** The dropout rate of the attention probabilities during training; default 0. */
  readonly attentionDropout?: number
  /** The dropout rate during training of the outputs that are added to the residual stream; default 0. */
  readonly residualDropout?: number
  /**
   * The random seed; default 0. Initial values depend only on the seed and on parameter names.
   * Dropped values also depend on the step and on the place in the batch.
   */
  readonly seed?: number
  /** Builds only the blocks with indices [from, to); default: all blocks. */
  readonly range?: readonly [from: number, to: number]
}

const size = count({ from: 1 })

const readOptions = declareOptions({
  vocabulary: size.default(256),
  block: size.default(64),
  layers: size.default(4),
  heads: size.default(4),
  width: size.default(128),
  hidden: size.optional(),
  tied: flag.default(false),
  epsilon: finite({ above: 0 }).default(1e-5),
  deviation: finite({ from: 0 }).default(0.02),
  embeddingDropout: dropoutRate.default(0),
  attentionDropout: dropoutRate.default(0),
  residualDropout: dropoutRate.default(0),
  seed: finite().default(0),
  range: anything<readonly [number, number]>(),
} satisfies Rules<GPTOptions>)

/**
 * A GPT like GPT-2 (Radford et al., 2019) that can be built in parts. The part with the first block also
 * has the embeddings of tokens and positions. The part with the last block also has a LayerNorm and the
 * output head, which computes the scores of the next token.
 *
 * Parameters have the names of GPT-2 files: `wte.weight`, `wpe.weight`, `h.<i>.ln_1.weight`,
 * `h.<i>.attn.c_attn.weight`, `h.<i>.attn.c_proj.weight`, `h.<i>.ln_2.weight`, `h.<i>.mlp.c_fc.weight`,
 * `h.<i>.mlp.c_proj.weight`, `ln_f.weight`, most with a bias, and `lm_head.weight` unless tied. Two
 * parameters have a different shape with the same values: `c_attn.weight` is [width, 3, width] instead of
 * [width, 3 width], and its bias is [3, width]. With tied weights, the parts with the first and the last
 * block each have a `wte.weight`; their gradients must be summed.
 *
 * Initial weights are uniform with standard deviation `deviation`. For weights whose outputs are added to
 * the residual stream, it is `deviation` / sqrt(2 layers).
 *
 * Dropout is applied as in GPT-2: to the embeddings, to the attention probabilities, and to the outputs
 * that blocks add to their input. It acts only in training, and drops the same values however the model
 * is divided among ranks.
 *
 * `forward` computes the scores of the next token at each position, [batch, length, vocabulary], from
 * int32 tokens [batch, length]. A part without the first block takes [batch, length, width], and a part
 * without the last block returns it.
 *
 * @throws ERR_TSR_ARGUMENT when a size, a rate or the range is invalid, or for an unknown option
 */
export class GPT extends ModuleChain {
  readonly kind = 'gpt'
  /** The largest number of tokens in a sequence. */
  readonly block: number

  constructor(options: GPTOptions = {}) {
    const {
      vocabulary,
      block,
      layers,
      heads,
      width,
      hidden,
      tied,
      seed,
      deviation,
      epsilon,
      embeddingDropout: rate,
      attentionDropout,
      residualDropout,
      range,
    } = readOptions(options)
    checkHeads(width, heads)
    const [from, to] = checkRange(range, layers)
    const children: Record<string, Module> = {}
    let table: Parameter | undefined
    if (from === 0) {
      const tokens = new Embedding({ name: 'wte', count: vocabulary, width, seed, deviation })
      table = tokens.weight
      children['wte'] = tokens
      const positions = { name: 'wpe', count: block, width, seed, deviation }
      children['wpe'] = new PositionEmbedding(positions)
      if (rate > 0) children['drop'] = new Dropout({ name: 'drop', rate, seed })
    }
    for (let i = from; i < to; i++) {
      const outputDeviation = deviation / Math.sqrt(2 * layers)
      const name = `h.${i}`
      children[name] = new Block({
        name,
        width,
        heads,
        seed,
        epsilon,
        deviation,
        outputDeviation,
        attentionDropout,
        residualDropout,
        ...(hidden !== undefined && { hidden }),
      })
    }
    if (to === layers) {
      children['ln_f'] = new LayerNorm({ name: 'ln_f', width, epsilon })
      const name = tied ? 'wte.weight' : 'lm_head.weight'
      const own = tied ? table : undefined
      children['lm_head'] = new Head(
        own ?? tableParameter(name, [vocabulary, width], seed, deviation),
      )
    }
    super(children)
    this.block = block
  }
}

/** The names of the parameters of a whole `GPT`. */
export function gptNames({ layers, tied }: Pick<CompleteGPTOptions, 'layers' | 'tied'>): string[] {
  const both = (names: readonly string[]) =>
    names.flatMap((name) => [`${name}.weight`, `${name}.bias`])
  const block = both(['ln_1', 'attn.c_attn', 'attn.c_proj', 'ln_2', 'mlp.c_fc', 'mlp.c_proj'])
  const blocks = Array.from({ length: layers }, (_, i) => block.map((name) => `h.${i}.${name}`))
  const head = tied ? [] : ['lm_head.weight']
  return ['wte.weight', 'wpe.weight', ...blocks.flat(), ...both(['ln_f']), ...head]
}

/** The options of a `GPT`, with all defaults filled in. */
export type CompleteGPTOptions = Omit<ReturnType<typeof readOptions>, 'range'>

/**
 * A recipe for a `GPT`, for `pipeline`. It allocates nothing until the whole model or a slice is built.
 *
 * @throws ERR_TSR_ARGUMENT for an invalid or unknown option
 */
export function gpt(options: Omit<GPTOptions, 'range'> = {}) {
  const complete: CompleteGPTOptions = readOptions(options)
  return {
    layers: complete.layers,
    /** The options, with all defaults filled in. */
    options: complete,
    build: () => new GPT(options),
    slice: (from: number, to: number) => new GPT({ ...options, range: [from, to] }),
  }
}

/** Whether the module is a `GPT` or a part of one. */
export const isGPT = ofKind<GPT>('gpt')

/** Options of `gptPlan`. */
export interface GptPlanOptions {
  /**
   * Whether to use sequence parallelism: ranks hold only a part of each sequence between the
   * sharded layers (Korthikanti et al., 2022). It sends the same number of bytes in twice as many
   * collectives. The memory of activations between these layers is divided by the number of ranks.
   * The sequence length must be a multiple of the number of ranks. Default false.
   */
  readonly sequence?: boolean
}

const readGptPlanOptions = declareOptions({
  sequence: flag.default(false),
} satisfies Rules<GptPlanOptions>)

/**
 * Returns the tensor parallel plan for a `GPT`: attention is divided by heads, feed-forward
 * networks by hidden units, and the vocabulary by tokens.
 *
 * @throws ERR_TSR_ARGUMENT for an unknown option
 */
export function gptPlan(options: GptPlanOptions = {}): ParallelPlan {
  const { sequence } = readGptPlanOptions(options)
  const column = columnParallel({ input: sequence ? 'sequence' : 'replicated' })
  const row = rowParallel({ output: sequence ? 'sequence' : 'replicated' })
  const between = sequenceParallel()
  return {
    wte: vocabParallel({ sequence }),
    ...(sequence ? { wpe: between, 'h.*.ln_1': between, 'h.*.ln_2': between, ln_f: between } : {}),
    'h.*.attn.c_attn': column,
    'h.*.attn.c_proj': row,
    'h.*.mlp.c_fc': column,
    'h.*.mlp.c_proj': row,
    lm_head: vocabParallel({ sequence }),
  }
}
