import { isObject, readFileText, tsrError } from '@tsrun/core'
import type { CompleteGPTOptions, GPTOptions } from './gpt.ts'

/** The tokens at the beginning and the end of a text; null if there are none. */
export interface TextEnds {
  readonly bos_token_id?: number | null
  readonly eos_token_id?: number | readonly number[] | null
}

const END_OF_TEXT = 50_256

/** The keys of a GPT-2 `config.json` that affect the computation. Missing keys have defaults. */
interface GPT2Config
  extends TextEnds, Readonly<Partial<Record<Numbers, number> & Record<Flags, boolean>>> {
  readonly model_type?: string
  readonly n_inner?: number | null
  readonly activation_function?: string
}

type Numbers =
  | 'vocab_size'
  | 'n_positions'
  | 'n_embd'
  | 'n_layer'
  | 'n_head'
  | 'layer_norm_epsilon'
  | 'initializer_range'
  | 'attn_pdrop'
  | 'embd_pdrop'
  | 'resid_pdrop'

type Flags =
  | 'tie_word_embeddings'
  | 'scale_attn_weights'
  | 'scale_attn_by_inverse_layer_idx'
  | 'add_cross_attention'

/** Names of the tanh approximation of GELU. */
const ACTIVATIONS = ['gelu_new', 'gelu_pytorch_tanh']

/**
 * Reads a `config.json` of the Hugging Face Hub: the options of a `GPT`, and the first and last tokens of
 * texts.
 *
 * @throws ERR_TSR_PRETRAINED when the file cannot be read, or describes a model that a `GPT` cannot
 *   compute
 */
export function readGPT2Config(path: string): {
  readonly options: GPTOptions
  readonly textEnds: TextEnds
} {
  const refuse = (problem: string, cause?: unknown) =>
    tsrError('ERR_TSR_PRETRAINED', { path, problem }, { cause })
  let config: GPT2Config
  try {
    const parsed: unknown = JSON.parse(readFileText(path))
    if (!isObject(parsed)) throw new Error('it is not an object')
    config = parsed
  } catch (error) {
    throw refuse((error as Error).message, error)
  }
  const { activation_function: activation = 'gelu_new' } = config
  const { attn_pdrop = 0.1, embd_pdrop = 0.1, resid_pdrop = 0.1 } = config
  const problems: readonly (readonly [isProblem: boolean, problem: string])[] = [
    [config.model_type !== 'gpt2', `its model_type is ${String(config.model_type)}, not gpt2`],
    [!ACTIVATIONS.includes(activation), `its activation_function is ${activation}, not gelu_new`],
    [config.scale_attn_weights === false, 'its scale_attn_weights is false'],
    [
      config.scale_attn_by_inverse_layer_idx === true,
      'its scale_attn_by_inverse_layer_idx is true',
    ],
    [config.add_cross_attention === true, 'its add_cross_attention is true'],
  ]
  for (const [name, rate] of Object.entries({ attn_pdrop, embd_pdrop, resid_pdrop })) {
    const isRate = typeof rate === 'number' && rate >= 0 && rate < 1
    if (!isRate) throw refuse(`its ${name} is ${rate}, not from 0 to less than 1`)
  }
  const [, problem] = problems.find(([isProblem]) => isProblem) ?? []
  if (problem !== undefined) throw refuse(problem)
  const { n_inner: hidden, tie_word_embeddings: tied = true } = config
  const options = {
    vocabulary: config.vocab_size ?? 50_257,
    block: config.n_positions ?? 1024,
    width: config.n_embd ?? 768,
    layers: config.n_layer ?? 12,
    heads: config.n_head ?? 12,
    epsilon: config.layer_norm_epsilon ?? 1e-5,
    attentionDropout: attn_pdrop,
    embeddingDropout: embd_pdrop,
    residualDropout: resid_pdrop,
    ...(typeof hidden === 'number' && { hidden }),
    tied,
  }
  const { bos_token_id: begin, eos_token_id: end } = config
  const textEnds = {
    ...(begin !== undefined && { bos_token_id: begin }),
    ...(end !== undefined && { eos_token_id: end }),
  }
  return { options, textEnds }
}

/**
 * Returns the content of a `config.json` for a `GPT`, as `transformers` reads it.
 *
 * @param textEnds - the first and last tokens of texts; default: those of GPT-2, if the vocabulary has
 *   them
 */
export function gpt2Config(
  options: CompleteGPTOptions,
  textEnds: TextEnds = {},
): Readonly<Record<string, unknown>> {
  const { vocabulary, block, width, layers, heads, hidden, epsilon, tied, deviation } = options
  const end = vocabulary > END_OF_TEXT ? END_OF_TEXT : null
  return {
    architectures: ['GPT2LMHeadModel'],
    model_type: 'gpt2',
    vocab_size: vocabulary,
    n_positions: block,
    n_embd: width,
    n_layer: layers,
    n_head: heads,
    n_inner: hidden ?? null,
    activation_function: 'gelu_new',
    layer_norm_epsilon: epsilon,
    initializer_range: deviation,
    tie_word_embeddings: tied,
    resid_pdrop: options.residualDropout,
    embd_pdrop: options.embeddingDropout,
    attn_pdrop: options.attentionDropout,
    bos_token_id: end,
    eos_token_id: end,
    ...textEnds,
    torch_dtype: 'float32',
  } satisfies GPT2Config & Record<string, unknown>
}
