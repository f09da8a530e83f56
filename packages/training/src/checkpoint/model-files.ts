import { existsSync } from 'node:fs'
import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import { anything, object, parseJson, readFileText, record, tsrError } from '@tsrun/core'
import { INDEX, isName } from './contents.ts'
import { describeNames, openSafetensors, type SafetensorsFile } from './safetensors/read.ts'

const HUB_INDEX = 'model.safetensors.index.json'
const HUB_FILE = 'model.safetensors'
const hubIndex = object({ weight_map: record(anything()) })

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
  const find = (tensor: string) => {
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
