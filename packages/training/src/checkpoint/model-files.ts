import { access, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { readFileText, tsrError } from '@tsrun/core'
import { INDEX, isName } from './contents.ts'
import { isRecord } from './safetensors/dtypes.ts'
import { describeNames, openSafetensors, type SafetensorsFile } from './safetensors/read.ts'

const HUB_INDEX = 'model.safetensors.index.json'
const HUB_FILE = 'model.safetensors'

/** The tensors of a model, in one or several safetensors files. */
export interface ModelFiles {
  readonly path: string
  readonly names: readonly string[]
  shapeOf(name: string): readonly number[]
  readFloats(name: string): Promise<Float32Array>
  /** Like `readFloats`, but synchronous; also works after `close`. */
  readFloatsSync(name: string): Float32Array
  close(): Promise<void>
}

/**
 * Opens a model in the format of the Hugging Face Hub: a safetensors file or a folder. The folder
 * contains `model.safetensors`, or several files listed in `model.safetensors.index.json`.
 *
 * @throws ERR_TSR_SAFETENSORS
 */
export async function openModelFiles(path: string): Promise<ModelFiles> {
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
    readFloatsSync: (name) => find(name).readFloatsSync(name),
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
  const names = new Set(Object.values(weightMap(readFileText(index))))
  const own = [...names].filter(isName)
  // Follow links: the cache of the Hugging Face Hub consists of links.
  if (own.length > 0 && own.length === names.size) return own.map((name) => join(path, name))
  throw tsrError('ERR_TSR_SAFETENSORS', { path: index, problem: 'it lists no files of its folder' })
}

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

/** Returns the unchecked file names by tensor; empty if `index` is not an index. */
function weightMap(index: string): Record<string, unknown> {
  try {
    const content: unknown = JSON.parse(index)
    const map = isRecord(content) ? content['weight_map'] : undefined
    return isRecord(map) ? map : {}
  } catch {
    return {}
  }
}
