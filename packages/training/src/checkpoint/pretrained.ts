import { existsSync } from 'node:fs'
import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import { setImmediate } from 'node:timers/promises'
import { anything, object, parseJson, readFileText, record, tsrError } from '@tsrun/core'
import { tensorFrom } from '../backend/host-memory.ts'
import { replaceValue, type Parameter } from '../model/parameter.ts'
import { sizeOf } from '../tfjs/host-arrays.ts'
import { INDEX, isName } from './contents.ts'
import { checkModule } from './owners.ts'
import { copyCommon, partOfParameter, partSize } from './piece.ts'
import {
  describeNames,
  floatsIn,
  openSafetensors,
  type SafetensorsFile,
} from './safetensors/format.ts'

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

/** The result of `loadPretrained`. */
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
 *   without parameters, such as a recipe; errors of the file system. Before the first value is read, all
 *   names, shapes and dtypes are checked. If reading fails later, some parameters have changed.
 */
export async function loadPretrained(
  path: string,
  model: { readonly parameters: readonly Parameter[] },
  mapping: NameMapping = (tensor) => ({ tensor }),
): Promise<PretrainedReport> {
  checkModule(model)
  const { loads, report } = prepareLoads(await openModelFiles(path), model.parameters, mapping)
  for (const load of loads) {
    load()
    // Let other work of this process run between reads.
    await setImmediate()
  }
  return report
}

/** Like `loadPretrained`, but synchronous, for recipes that build their parts synchronously. */
export function fillFrom(...from: Parameters<typeof prepareLoads>): void {
  for (const load of prepareLoads(...from).loads) load()
}

/** Checks that the files have all parameters. Returns a function for each parameter that loads it. */
function prepareLoads(files: ModelFiles, parameters: readonly Parameter[], mapping: NameMapping) {
  const names = new Set(files.names)
  const all = Array.from(new Set(parameters), (parameter) => {
    const source = mapping(parameter.name, names)
    return { parameter, source, file: files.fileOf(source.tensor) }
  })
  for (const { parameter, source, file } of all) checkSource(parameter, source, file)
  const loads = all.map(({ parameter, source, file }) => () => {
    const values = partOfStored(parameter, source, file.readFloats(source.tensor))
    replaceValue(parameter, tensorFrom(values, parameter.shape))
  })
  const used = new Set(all.map(({ source }) => source.tensor))
  const unused = files.names.filter((name) => !used.has(name))
  return { loads, report: { loaded: all.length, unused } }
}

/** Throws unless the tensor has floats and the shape of the parameter. Axes may be joined. */
function checkSource(parameter: Parameter, source: PretrainedSource, file: SafetensorsFile) {
  floatsIn(file, source.tensor)
  const { name, shape } = partOfParameter(parameter)
  const { shape: found } = file.entry(source.tensor)
  const [rows, ...columns] = shape
  const wanted = source.transpose === true ? [sizeOf(columns), rows!] : shape
  if (areSame(found, wanted)) return
  throw tsrError('ERR_TSR_CHECKPOINT_SHAPE', {
    tensor: name,
    path: file.path,
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

/** Finds the tensors of a safetensors file, or of a folder from the Hugging Face Hub. */
export async function openModelFiles(path: string) {
  const files = new Map<string, SafetensorsFile>()
  for (const name of await listFiles(path)) {
    const file = openSafetensors(name)
    for (const tensor of file.entries.keys()) files.set(tensor, file)
  }
  const names = [...files.keys()]
  return {
    names,
    /** @throws ERR_TSR_SAFETENSORS_TENSOR when no file has the tensor */
    fileOf(tensor: string) {
      const file = files.get(tensor)
      if (file !== undefined) return file
      throw tsrError('ERR_TSR_SAFETENSORS_TENSOR', { path, tensor, found: describeNames(names) })
    },
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
  // Map tensor names to unchecked file names. The map is empty if the file is not an index.
  const files = parseJson(readFileText(index), hubIndex)?.weight_map ?? {}
  const names = new Set(Object.values(files))
  const own = [...names].filter(isName)
  // Follow links: the cache of the Hugging Face Hub consists of links.
  if (own.length > 0 && own.length === names.size) return own.map((name) => join(path, name))
  throw tsrError('ERR_TSR_SAFETENSORS', { path: index, problem: 'it lists no files of its folder' })
}
