import { join } from 'node:path'
import { choice, declareOptions, type Rules } from '@tsrun/core'
import type { NameMapping } from '@tsrun/training'
import { fillFrom, openModelFiles } from '@tsrun/training/parts'
import { GPT, gpt, type CompleteGPTOptions } from './gpt.ts'
import { readGPT2Config, type TextEnds } from './gpt2-config.ts'

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
  await files.close()
  const make = (range?: readonly [from: number, to: number]): GPT => {
    // Skip random initial values, because the weights of the files replace them.
    const model = new GPT({ ...options, deviation: 0, ...(range && { range }) })
    fillFrom(files, model.parameters, gpt2Names())
    return model
  }
  const { textEnds } = config
  return { layers, options, textEnds, build: () => make(), slice: (from, to) => make([from, to]) }
}

/** Options of `gpt2Names`. */
export interface GPT2NamesOptions {
  /**
   * The layout of linear weights in the file: [inputs, outputs] (`conv1d`, default), as in the
   * original GPT-2, or [outputs, inputs] (`linear`), as in torch.nn.Linear.
   */
  readonly weights?: 'conv1d' | 'linear'
}

const readGPT2Options = declareOptions({
  weights: choice('conv1d', 'linear').default('conv1d'),
} satisfies Rules<GPT2NamesOptions>)

/**
 * Maps the parameters of a `GPT` to the tensors of a GPT-2 file from the Hugging Face Hub. Tensor names
 * may start with `transformer.`. If the file has no `lm_head.weight`, the parameter is read from
 * `wte.weight`.
 *
 * @throws ERR_TSR_ARGUMENT
 */
export function gpt2Names(options: GPT2NamesOptions = {}): NameMapping {
  const { weights } = readGPT2Options(options)
  return (name, names) => {
    const wanted = name === 'lm_head.weight' && !names.has(name) ? 'wte.weight' : name
    const prefixed = `transformer.${wanted}`
    const tensor = names.has(prefixed) ? prefixed : wanted
    const isLinear = /\.c_(attn|proj|fc)\.weight$/.test(name)
    return { tensor, transpose: isLinear && weights === 'linear' }
  }
}
