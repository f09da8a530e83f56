import { join } from 'node:path'
import { isObject, readFileText, tsrError } from '@tsrun/core'
import type { NameMapping } from '@tsrun/training'
import { fillFrom, openModelFiles } from '@tsrun/training/parts'
import { GPT, gpt, type CompleteGPTOptions, type GPTOptions } from './gpt.ts'

/** A recipe for a `GPT` with weights from files. Building a part of the model reads its weights. */
export interface PretrainedGPT {
  readonly layers: number
  readonly options: CompleteGPTOptions
  /** The tokens at the beginning and the end of a text, for `exportPretrained`. */
  readonly textEnds: TextEnds
  build(): GPT
  slice(from: number, to: number): GPT
}

/**
 * Makes a recipe for a GPT-2 in a folder of the Hugging Face Hub. The folder contains `config.json`
 * and `model.safetensors`, or several weight files with `model.safetensors.index.json`. Use the
 * recipe like `gpt()`: each rank reads only the layers that it builds. Training uses the dropout
 * rates of the configuration; a missing rate is 0.1, as in `transformers`.
 *
 * @throws ERR_TSR_PRETRAINED when config.json is missing, or describes a model that a `GPT` cannot
 *   compute; ERR_TSR_SAFETENSORS when weight files are missing or damaged. Building a part also
 *   throws ERR_TSR_SAFETENSORS_TENSOR and ERR_TSR_CHECKPOINT_SHAPE
 * @example
 * const recipe = await pretrainedGPT('gpt2')
 * const pipe = pipeline(parallelize(recipe, gptPlan(), mesh.tp), mesh.pp, { optimizer })
 */
export async function pretrainedGPT(folder: string): Promise<PretrainedGPT> {
  const config = readGPT2Config(join(folder, 'config.json'))
  const { layers, options } = gpt(config.options)
  const files = await openModelFiles(folder)
  const make = (range?: readonly [from: number, to: number]): GPT => {
    // Skip random initial values, because the weights of the files replace them.
    const model = new GPT({ ...options, deviation: 0, ...(range && { range }) })
    fillFrom(files, model.parameters, gpt2Names)
    return model
  }
  const { textEnds } = config
  return { layers, options, textEnds, build: () => make(), slice: (from, to) => make([from, to]) }
}

/**
 * Maps the parameters of a `GPT` to the tensors of a GPT-2 file from the Hugging Face Hub. Tensor names
 * may start with `transformer.`. If the file has no `lm_head.weight`, the parameter is read from
 * `wte.weight`.
 */
export const gpt2Names: NameMapping = (name, names) => {
  const wanted = name === 'lm_head.weight' && !names.has(name) ? 'wte.weight' : name
  const prefixed = `transformer.${wanted}`
  return { tensor: names.has(prefixed) ? prefixed : wanted }
}

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
  const problems = [
    config.model_type !== 'gpt2' && `its model_type is ${String(config.model_type)}, not gpt2`,
    !ACTIVATIONS.includes(activation) && `its activation_function is ${activation}, not gelu_new`,
    config.scale_attn_weights === false && 'its scale_attn_weights is false',
    config.scale_attn_by_inverse_layer_idx === true &&
      'its scale_attn_by_inverse_layer_idx is true',
    config.add_cross_attention === true && 'its add_cross_attention is true',
  ]
  for (const [name, rate] of Object.entries({ attn_pdrop, embd_pdrop, resid_pdrop })) {
    const isRate = typeof rate === 'number' && rate >= 0 && rate < 1
    if (!isRate) throw refuse(`its ${name} is ${rate}, not from 0 to less than 1`)
  }
  const problem = problems.find((each) => each !== false)
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
 * @param textEnds - the first and last tokens of texts; default: the tokens of GPT-2, if the vocabulary has
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
