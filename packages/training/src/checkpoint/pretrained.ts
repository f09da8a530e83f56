import { access, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { choice, declareOptions, tsrError, type Rules } from '@tsrun/core'
import { tensorFrom } from '../backend/host-memory.ts'
import { replaceValue, type Parameter } from '../model/parameter.ts'
import { sizeOf } from '../tfjs/host-arrays.ts'
import { INDEX } from './contents.ts'
import { copyCommon, partOfParameter, partSize } from './piece.ts'
import { describeNames, openSafetensors, type SafetensorsFile } from './safetensors/read.ts'
import { checkModule } from './state.ts'

const HUB_INDEX = 'model.safetensors.index.json'
const HUB_FILE = 'model.safetensors'

/** The tensor of a file that has the values of a parameter. */
export interface PretrainedSource {
  /** The name of the tensor in the file. */
  readonly tensor: string
  /** Whether the matrix in the file is [outputs, inputs], as in torch's Linear; default false. */
  readonly transpose?: boolean
}

/**
 * Maps a parameter to a tensor of a file from another program.
 *
 * @param name - the name of the parameter
 * @param names - the names of all tensors in the file
 */
export type NameMapping = (name: string, names: ReadonlySet<string>) => PretrainedSource

export interface PretrainedReport {
  /** The number of parameters that were loaded. */
  readonly loaded: number
  /** The tensors of the file that were not used. */
  readonly unused: readonly string[]
}

/**
 * Loads pretrained weights into a model, or into the part of a model on this rank.
 *
 * The file has to contain the same numbers in the same order, as float32, float16 or bfloat16. Axes may
 * be joined: a weight [width, 3, width] accepts the values of [width, 3 width].
 *
 * @param path - a safetensors file, or a folder from the Hugging Face Hub with `model.safetensors`, or
 *   with several files and `model.safetensors.index.json`
 * @param mapping - default: the same names
 *
 * @example
 * await loadPretrained('gpt2/model.safetensors', model, gpt2Names())
 *
 * @throws ERR_TSR_SAFETENSORS_TENSOR when a tensor is missing, ERR_TSR_CHECKPOINT_SHAPE when it has
 *   another shape, ERR_TSR_SAFETENSORS when the file is missing or damaged, ERR_TSR_ARGUMENT for a model
 *   without parameters, such as a recipe
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
   * The layout of the weights of linear layers in the file: [inputs, outputs] (`conv1d`, default), as in
   * the original GPT-2, or [outputs, inputs] (`linear`), as in torch's Linear.
   */
  readonly weights?: 'conv1d' | 'linear'
}

const readGPT2Options = declareOptions({
  weights: choice(['conv1d', 'linear']).default('conv1d'),
} satisfies Rules<GPT2NamesOptions>)

/**
 * Maps the parameters of a `GPT` to the tensors of a GPT-2 file from the Hugging Face Hub, whose names may
 * start with `transformer.`. A file without `lm_head.weight` has tied it to `wte.weight`.
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

/** @throws ERR_TSR_CHECKPOINT_SHAPE unless the tensor has the shape of the whole parameter, or joined axes */
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

/** Whether the shapes are the same except for joined axes: [width, 3, width] and [width, 3 width] are. */
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

/** The tensors of a model, in one or several safetensors files. */
interface ModelFiles {
  readonly path: string
  readonly names: readonly string[]
  shapeOf(name: string): readonly number[]
  readFloats(name: string): Promise<Float32Array>
  close(): Promise<void>
}

/**
 * Opens a model as the Hugging Face Hub stores it: a file, or a folder with `model.safetensors` or with
 * several files that `model.safetensors.index.json` lists.
 *
 * @throws ERR_TSR_SAFETENSORS
 */
async function openModelFiles(path: string): Promise<ModelFiles> {
  const files: SafetensorsFile[] = []
  try {
    for (const file of await listFiles(path)) files.push(await openSafetensors(file))
  } catch (error) {
    await Promise.all(files.map((file) => file.close()))
    throw error
  }
  const fileOf = new Map(
    files.flatMap((file) => [...file.entries.keys()].map((name) => [name, file])),
  )
  const find = (tensor: string): SafetensorsFile => {
    const file = fileOf.get(tensor)
    if (file !== undefined) return file
    const found = describeNames([...fileOf.keys()])
    throw tsrError('ERR_TSR_SAFETENSORS_TENSOR', { path, tensor, found })
  }
  return {
    path,
    names: [...fileOf.keys()],
    shapeOf: (name) => find(name).entry(name).shape,
    readFloats: async (name) => await find(name).readFloats(name),
    async close() {
      await Promise.all(files.map((file) => file.close()))
    },
  }
}

async function listFiles(path: string): Promise<string[]> {
  const found = await stat(path).catch((error: unknown) => {
    const { message: problem } = error as Error
    throw tsrError('ERR_TSR_SAFETENSORS', { path, problem }, { cause: error })
  })
  if (!found.isDirectory()) return [path]
  const index = join(path, HUB_INDEX)
  if (!(await exists(index))) {
    const single = join(path, HUB_FILE)
    if (await exists(single)) return [single]
    throw tsrError('ERR_TSR_SAFETENSORS', { path, problem: await problemOf(path) })
  }
  const names = new Set(Object.values(weightMap(await readFile(index, 'utf8'))))
  if (names.size > 0 && [...names].every((name) => /^[\w.-]+$/.test(name))) {
    return Array.from(names, (name) => join(path, name))
  }
  throw tsrError('ERR_TSR_SAFETENSORS', { path: index, problem: 'it lists no files of its folder' })
}

/** Why a folder is not a model. */
async function problemOf(path: string): Promise<string> {
  if (await exists(join(path, INDEX))) return 'it is a checkpoint, which loadCheckpoint loads'
  return `the folder has neither ${HUB_FILE} nor ${HUB_INDEX}`
}

async function exists(path: string): Promise<boolean> {
  return await access(path).then(
    () => true,
    () => false,
  )
}

/** The files of an index by tensor name; empty if `index` is not one. */
function weightMap(index: string): Record<string, string> {
  try {
    const content = JSON.parse(index) as { weight_map?: Record<string, string> } | null
    return content?.weight_map ?? {}
  } catch {
    return {}
  }
}
