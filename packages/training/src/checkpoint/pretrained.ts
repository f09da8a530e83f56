import { refuseUnknown, tsrError } from '@tsrun/core'
import { checkChoice } from '../arguments.ts'
import { tensorFrom } from '../backend/host-memory.ts'
import { sizeOf } from '../backend/shape.ts'
import { replaceValue, type Parameter } from '../model/parameter.ts'
import { checkModule } from './arguments.ts'
import { copyCommon } from './overlap.ts'
import { partOfParameter, partSize } from './piece.ts'
import { openModelFiles, type ModelFiles } from './safetensors/model-files.ts'

/** Where the values of a parameter come from. */
export interface PretrainedSource {
  /** Name in the file. */
  readonly tensor: string
  /** The file has the matrix as [outputs, inputs], as torch's Linear keeps it. */
  readonly transpose?: boolean
}

/**
 * Says where a parameter is in a file of another origin.
 *
 * @param name - of the parameter
 * @param names - of all tensors in the file
 */
export type NameMapping = (name: string, names: ReadonlySet<string>) => PretrainedSource

export interface PretrainedReport {
  /** Number of parameters that were loaded. */
  readonly loaded: number
  /** Tensors of the file that no parameter has asked for. */
  readonly unused: readonly string[]
}

/**
 * Loads weights that others have trained into a model, or into this rank's part of one.
 *
 * Of each parameter the file has the same numbers in the same order, as float32, float16 or bfloat16;
 * axes may be joined: a weight [width, 3, width] takes the values of one [width, 3 width].
 *
 * @param path - a safetensors file, or a folder as the Hugging Face Hub has it: `model.safetensors`,
 *   or several files with `model.safetensors.index.json`
 * @param mapping - default: the same names
 *
 * @example
 * await loadPretrained('gpt2/model.safetensors', model, gpt2Names())
 *
 * @throws ERR_TSR_SAFETENSORS_TENSOR when a tensor is missing, ERR_TSR_CHECKPOINT_SHAPE when it has
 *   another shape, ERR_TSR_SAFETENSORS when there is no such file, or a damaged one, ERR_TSR_ARGUMENT
 *   for a model without parameters, as a recipe is
 */
export async function loadPretrained(
  path: string,
  model: { readonly parameters: readonly Parameter[] },
  mapping: NameMapping = (tensor) => ({ tensor }),
): Promise<PretrainedReport> {
  checkModule(model)
  const files = await openModelFiles(path)
  try {
    const names = new Set(files.names)
    const all = [...new Set(model.parameters)]
    const sources = all.map(({ name }) => mapping(name, names))
    for (const [i, parameter] of all.entries()) checkShape(parameter, sources[i]!, files)
    const values: Float32Array[] = []
    for (const [i, parameter] of all.entries()) {
      values.push(await readParameter(parameter, sources[i]!, files))
    }
    for (const [i, parameter] of all.entries()) {
      replaceValue(parameter, tensorFrom(values[i]!, parameter.shape))
    }
    const used = new Set(sources.map(({ tensor }) => tensor))
    return { loaded: all.length, unused: [...names].filter((name) => !used.has(name)) }
  } finally {
    await files.close()
  }
}

export interface GPT2NamesOptions {
  /**
   * How the file has the weights of linear layers: [inputs, outputs] (`conv1d`, default), as GPT-2's
   * own, or [outputs, inputs] (`linear`), as torch's Linear.
   */
  readonly weights?: 'conv1d' | 'linear'
}

/**
 * Where a `GPT`'s parameters are in a GPT-2 file of the Hugging Face Hub: with `transformer.` before
 * the name or without. A file without `lm_head.weight` has tied it to `wte.weight`.
 *
 * @throws ERR_TSR_ARGUMENT
 */
export function gpt2Names(options: GPT2NamesOptions = {}): NameMapping {
  refuseUnknown(options, ['weights'])
  const { weights = 'conv1d' } = options
  checkChoice('weights', weights, ['conv1d', 'linear'])
  return (name, names) => {
    const wanted = name === 'lm_head.weight' && !names.has(name) ? 'wte.weight' : name
    const prefixed = `transformer.${wanted}`
    const tensor = names.has(prefixed) ? prefixed : wanted
    const isLinear = /\.c_(attn|proj|fc)\.weight$/.test(name)
    return { tensor, transpose: isLinear && weights === 'linear' }
  }
}

/** Axes may be joined or cut; the last one of a matrix that is transposed is the first in the file. */
function checkShape(parameter: Parameter, source: PretrainedSource, files: ModelFiles): void {
  const { name, shape } = partOfParameter(parameter)
  const found = files.shapeOf(source.tensor)
  const [rows, ...columns] = shape
  const wanted = source.transpose === true ? [sizeOf(columns), rows!] : shape
  if (areSame(found, wanted)) return
  throw tsrError('ERR_TSR_CHECKPOINT_SHAPE', {
    tensor: name,
    path: files.path,
    has: `${source.tensor} [${found.join(', ')}]`,
    wants: `[${wanted.join(', ')}]`,
  })
}

/** [width, 3, width] is [width, 3 width]: they begin and multiply alike. */
function areSame(found: readonly number[], wanted: readonly number[]): boolean {
  const isJoined = found.length > 0 && found.length < wanted.length
  const joined = isJoined
    ? [...wanted.slice(0, found.length - 1), sizeOf(wanted.slice(found.length - 1))]
    : wanted
  return joined.join() === found.join()
}

async function readParameter(
  parameter: Parameter,
  { tensor, transpose = false }: PretrainedSource,
  files: ModelFiles,
): Promise<Float32Array> {
  const part = partOfParameter(parameter)
  const stored = await files.readFloats(tensor)
  const values = transpose ? transposed(stored, part.shape[0]!) : stored
  const piece = { ...part, values: new Float32Array(partSize(part)) }
  copyCommon({ name: part.name, shape: part.shape, values }, piece)
  return piece.values
}

/** From [columns, rows] to [rows, columns]. */
function transposed(values: Float32Array, rows: number): Float32Array {
  const columns = values.length / rows
  return values.map((_, i) => values[(i % columns) * rows + Math.floor(i / columns)]!)
}
