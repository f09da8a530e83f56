import { join } from 'node:path'
import { crc32 } from 'node:zlib'
import { isTsrError, tsrError } from '@tsrun/core'
import type { StoredPiece } from './contents.ts'
import type { Checkpoint } from './folders.ts'
import { commonRuns, copyCommon } from './overlap.ts'
import { partSize, type Part, type Piece, type PieceValues } from './piece.ts'
import { keyOf } from './plan.ts'
import { bytesOf, toValues, type SafetensorsDType } from './safetensors/dtypes.ts'
import { describeNames, openSafetensors, type SafetensorsFile } from './safetensors/read.ts'

interface Wanted {
  readonly part: Part
  readonly dtype: SafetensorsDType
  values: PieceValues | undefined
  /** Values that it has so far. */
  filled: number
}

/** A stored piece, and who wants values of it. */
interface Task {
  readonly stored: StoredPiece
  /** Its part of the whole. */
  readonly part: Part
  readonly wanted: readonly Wanted[]
}

/**
 * Reads parts of the tensors of a checkpoint, whatever parts it was saved in. Each stored piece is
 * read once, and all of it, for its checksum.
 *
 * @throws ERR_TSR_CHECKPOINT_MISSING, ERR_TSR_CHECKPOINT_SHAPE, ERR_TSR_CHECKPOINT_DAMAGED
 */
export async function readParts(checkpoint: Checkpoint, parts: readonly Part[]): Promise<Piece[]> {
  const wanted = parts.map((part) => wish(checkpoint, part))
  for (const [name, tasks] of tasksByFile(checkpoint, wanted)) {
    const path = join(checkpoint.path, name)
    const file = await openSafetensors(path).catch((error: unknown) => {
      throw damaged(path, tasks[0]!.part.name, error)
    })
    try {
      for (const task of tasks) await readTask(file, task)
    } finally {
      await file.close()
    }
  }
  return wanted.map((each) => {
    const size = partSize(each.part)
    if (each.filled !== size) {
      const problem = `it has ${String(each.filled)} of the ${String(size)} values that this rank wants`
      throw damaged(checkpoint.path, each.part.name, new Error(problem))
    }
    return { ...each.part, values: valuesOf(each) }
  })
}

function wish({ path, contents }: Checkpoint, part: Part): Wanted {
  const tensor = Object.hasOwn(contents.tensors, part.name)
    ? contents.tensors[part.name]
    : undefined
  if (tensor === undefined) {
    const found = describeNames(Object.keys(contents.tensors))
    throw tsrError('ERR_TSR_CHECKPOINT_MISSING', { path, tensor: part.name, found })
  }
  const [has, wants] = [tensor.shape, part.shape].map((shape) => `[${shape.join(', ')}]`)
  if (has === wants) {
    return { part, dtype: tensor.dtype as SafetensorsDType, values: undefined, filled: 0 }
  }
  const facts = { path, tensor: part.name, has: has!, wants: wants! }
  throw tsrError('ERR_TSR_CHECKPOINT_SHAPE', facts)
}

function valuesOf(wanted: Wanted): PieceValues {
  const { part, dtype } = wanted
  const make = () => toValues(dtype, new ArrayBuffer(partSize(part) * bytesOf(dtype)))
  return (wanted.values ??= make() as PieceValues)
}

function tasksByFile({ contents }: Checkpoint, wanted: readonly Wanted[]): Map<string, Task[]> {
  const byName = new Map<string, Wanted[]>()
  for (const each of wanted) {
    const { name } = each.part
    byName.set(name, [...(byName.get(name) ?? []), each])
  }
  const tasks = new Map<string, Task[]>()
  for (const [name, candidates] of byName) {
    const { shape, pieces } = contents.tensors[name]!
    for (const stored of pieces) {
      const { file, box, range } = stored
      const part = { name, shape, ...(box && { box }), ...(range && { range }) }
      const takers = candidates.filter((each) => commonRuns(part, each.part).next().done === false)
      if (takers.length === 0) continue
      tasks.set(file, [...(tasks.get(file) ?? []), { stored, part, wanted: takers }])
    }
  }
  return tasks
}

async function readTask(file: SafetensorsFile, { stored, part, wanted }: Task): Promise<void> {
  const { key } = stored
  try {
    const values = (await file.read(key)) as PieceValues
    // the header has no checksum
    const isSame = file.entry(key).dtype === wanted[0]!.dtype && values.length === partSize(part)
    if (!isSame) throw new Error(`${key} has another type or shape`)
    const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength)
    if (crc32(bytes) !== stored.crc32) throw new Error(`the checksum of ${key} is another one`)
    const [first] = wanted
    // mostly a rank wants what one has saved: no copy then
    if (wanted.length === 1 && keyOf(first!.part) === key) {
      first!.values = values
      first!.filled = values.length
      return
    }
    for (const each of wanted) {
      each.filled += copyCommon({ ...part, values }, { ...each.part, values: valuesOf(each) })
    }
  } catch (error) {
    throw damaged(file.path, part.name, error)
  }
}

function damaged(path: string, tensor: string, error: unknown): Error {
  const { code, message } = error as NodeJS.ErrnoException
  // what the file system says stays
  if (code !== undefined && !isTsrError(error)) return error as Error
  const problem = isTsrError(error) ? String(error.facts['problem'] ?? message) : message
  return tsrError('ERR_TSR_CHECKPOINT_DAMAGED', { path, tensor, problem }, { cause: error })
}
