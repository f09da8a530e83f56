import { existsSync } from 'node:fs'
import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import { anything, object, parseJson, readFileText, record, tsrError } from '@tsrun/core'
import { tensorFrom } from '../backend/host-memory.ts'
import { replaceValue, type Parameter } from '../model/parameter.ts'
import { sizeOf } from '../tfjs/host-arrays.ts'
import { INDEX, isName } from './contents.ts'
import { checkModule } from './owners.ts'
import { copyCommon, partOfParameter, partSize } from './piece.ts'
import { describeNames, openSafetensors, type SafetensorsFile } from './safetensors/format.ts'

/** The tensor of a file from which a parameter gets its values. */
export interface PretrainedSource {
  /** The name of the tensor in the file. */
  readonly tensor: string
  /** Whether the file has the matrix as [outputs, inputs], like torch's Linear; default false. */
  readonly transpose?: boolean
}

/**
 * Maps a parameter to a tensor in a file that another program wrote.
 *
 * @param name - the name of the parameter
 * @param names - the names of all tensors in the file
 */
export type NameMapping = (name: string, names: ReadonlySet<string>) => PretrainedSource

/** What `loadPretrained` has loaded. */
export interface PretrainedReport {
  /** The number of parameters that were loaded. */
  readonly loaded: number
  /** The tensors of the file that were not used. */
  readonly unused: readonly string[]
}

/**
 * Loads pretrained weights into a model, or into this rank's part of a model.
 *
 * The file must contain the same numbers in the same order, as float32, float16 or bfloat16. Axes may be
 * joined: a weight [width, 3, width] accepts the values of [width, 3 width].
 *
 * @param path - a safetensors file, or a folder from the Hugging Face Hub with `model.safetensors`, or
 *   with several files and `model.safetensors.index.json`
 * @param mapping - default: the same names
 *
 * @example
 * await loadPretrained('gpt2/model.safetensors', model, gpt2Names)
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
    const all = Array.from(new Set(model.parameters), (parameter) => ({
      parameter,
      source: mapping(parameter.name, names),
    }))
    for (const { parameter, source } of all) checkShape(parameter, source, files)
    const read: { parameter: Parameter; values: Float32Array }[] = []
    for (const { parameter, source } of all) {
      const stored = await files.readFloats(source.tensor)
      read.push({ parameter, values: partOfStored(parameter, source, stored) })
    }
    for (const { parameter, values } of read) {
      replaceValue(parameter, tensorFrom(values, parameter.shape))
    }
    const used = new Set(all.map(({ source }) => source.tensor))
    return { loaded: all.length, unused: [...names].filter((name) => !used.has(name)) }
  } finally {
    await files.close()
  }
}

/**
 * @throws ERR_TSR_CHECKPOINT_SHAPE unless the tensor has the parameter's shape, except for joined
 *   axes
 */
function checkShape(parameter: Parameter, source: PretrainedSource, files: ModelFiles) {
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

/** Whether the shapes are equal except for joined axes, like [width, 3, width] and [width, 3 width]. */
function areSame(found: readonly number[], wanted: readonly number[]) {
  const isJoined = found.length > 0 && found.length < wanted.length
  const joined = isJoined
    ? [...wanted.slice(0, found.length - 1), sizeOf(wanted.slice(found.length - 1))]
    : wanted
  return joined.join() === found.join()
}

function partOfStored(
  parameter: Parameter,
  { transpose = false }: PretrainedSource,
  stored: Float32Array,
) {
  const part = partOfParameter(parameter)
  const values = transpose ? transposed(stored, part.shape[0]!) : stored
  if (parameter.shard === undefined) return values
  const piece = { ...part, values: new Float32Array(partSize(part)) }
  copyCommon({ name: part.name, shape: part.shape, values }, piece)
  return piece.values
}

/**
 * Like `loadPretrained`, but synchronous, for recipes that build their parts synchronously.
 *
 * @param files - may already be closed
 */
export function fillFrom(
  files: ModelFiles,
  parameters: readonly Parameter[],
  mapping: NameMapping,
): void {
  const names = new Set(files.names)
  for (const parameter of new Set(parameters)) {
    const source = mapping(parameter.name, names)
    checkShape(parameter, source, files)
    const values = partOfStored(parameter, source, files.readFloatsSync(source.tensor))
    replaceValue(parameter, tensorFrom(values, parameter.shape))
  }
}

/** Transposes a matrix from [columns, rows] to [rows, columns]. */
function transposed(values: Float32Array, rows: number) {
  const columns = values.length / rows
  return values.map((_, i) => values[(i % columns) * rows + Math.floor(i / columns)]!)
}

const HUB_INDEX = 'model.safetensors.index.json'
const HUB_FILE = 'model.safetensors'
const hubIndex = object({ weight_map: record(anything()) })

/** The tensors of a model, in one or several safetensors files. */
export type ModelFiles = Awaited<ReturnType<typeof openModelFiles>>

/**
 * Opens a model in the format of the Hugging Face Hub: a safetensors file or a folder. The folder
 * contains `model.safetensors`, or several files listed in `model.safetensors.index.json`.
 *
 * @throws ERR_TSR_SAFETENSORS
 */
export async function openModelFiles(path: string) {
  const files: SafetensorsFile[] = []
  const close = async () => {
    await Promise.all(files.map((file) => file.close()))
  }
  try {
    for (const file of await listFiles(path)) files.push(await openSafetensors(file))
  } catch (error) {
    await close()
    throw error
  }
  const fileOf = new Map(
    files.flatMap((file) => [...file.entries.keys()].map((name) => [name, file])),
  )
  const find = (tensor: string) => {
    const file = fileOf.get(tensor)
    if (file !== undefined) return file
    const found = describeNames([...fileOf.keys()])
    throw tsrError('ERR_TSR_SAFETENSORS_TENSOR', { path, tensor, found })
  }
  return {
    path,
    names: [...fileOf.keys()],
    shapeOf: (name: string) => find(name).entry(name).shape,
    readFloats: async (name: string) => await find(name).readFloats(name),
    /** Like `readFloats`, but synchronous; also works after `close`. */
    readFloatsSync: (name: string) => find(name).readFloatsSync(name),
    close,
  }
}

async function listFiles(path: string) {
  const found = await stat(path).catch((error: unknown) => {
    const { message: problem } = error as Error
    throw tsrError('ERR_TSR_SAFETENSORS', { path, problem }, { cause: error })
  })
  if (!found.isDirectory()) return [path]
  const index = join(path, HUB_INDEX)
  if (!existsSync(index)) {
    const single = join(path, HUB_FILE)
    if (existsSync(single)) return [single]
    const problem = existsSync(join(path, INDEX))
      ? 'it is a checkpoint, which loadCheckpoint loads'
      : `the folder has neither ${HUB_FILE} nor ${HUB_INDEX}`
    throw tsrError('ERR_TSR_SAFETENSORS', { path, problem })
  }
  // The file names by tensor, which are unchecked. There are none if the file is not an index.
  const files = parseJson(readFileText(index), hubIndex)?.weight_map ?? {}
  const names = new Set(Object.values(files))
  const own = [...names].filter(isName)
  // Follow links: the cache of the Hugging Face Hub consists of links.
  if (own.length > 0 && own.length === names.size) return own.map((name) => join(path, name))
  throw tsrError('ERR_TSR_SAFETENSORS', { path: index, problem: 'it lists no files of its folder' })
}
