import { access, readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { tsrError } from '@tsrun/core'
import { INDEX as CHECKPOINT } from '../contents.ts'
import { describeNames, openSafetensors, type SafetensorsFile } from './read.ts'

/** The tensors of a model, in one safetensors file or in several. */
export interface ModelFiles {
  readonly path: string
  readonly names: readonly string[]
  shapeOf(name: string): readonly number[]
  readFloats(name: string): Promise<Float32Array>
  close(): Promise<void>
}

const INDEX = 'model.safetensors.index.json'
const SINGLE = 'model.safetensors'

/**
 * Opens a model as the Hugging Face Hub stores it: a file, or in a folder `model.safetensors`, or
 * several that `model.safetensors.index.json` lists.
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
  const index = join(path, INDEX)
  if (!(await exists(index))) {
    const single = join(path, SINGLE)
    if (await exists(single)) return [single]
    throw tsrError('ERR_TSR_SAFETENSORS', { path, problem: await missingIn(path) })
  }
  const names = new Set(Object.values(weightMap(await readFile(index, 'utf8'))))
  if (names.size > 0 && [...names].every((name) => /^[\w.-]+$/.test(name))) {
    return Array.from(names, (name) => join(path, name))
  }
  throw tsrError('ERR_TSR_SAFETENSORS', { path: index, problem: 'it names no files of its folder' })
}

/** What a folder is that has no model. */
async function missingIn(path: string): Promise<string> {
  if (await exists(join(path, CHECKPOINT))) return 'it is a checkpoint, which loadCheckpoint loads'
  return `the folder has neither ${SINGLE} nor ${INDEX}`
}

async function exists(path: string): Promise<boolean> {
  return await access(path).then(
    () => true,
    () => false,
  )
}

/** File by name of the tensor; of what is no such index nothing. */
function weightMap(index: string): Record<string, string> {
  try {
    const content = JSON.parse(index) as { weight_map?: Record<string, string> } | null
    return content?.weight_map ?? {}
  } catch {
    return {}
  }
}
