import { join } from 'node:path'
import { crc32 } from 'node:zlib'
import { declareOptions, flag, isTsrError, tsrError, type Rules } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { traceWait } from '@tsrun/distributed/record'
import type { StoredPiece } from './contents.ts'
import { onAllRanks } from './coordination.ts'
import { latestFor, openFinished, type Checkpoint, type LatestCheckpoint } from './folders.ts'
import {
  copyCommon,
  haveCommon,
  isStateName,
  partSize,
  type Part,
  type Piece,
  type PieceOwner,
  type PieceValues,
} from './piece.ts'
import { keyOf } from './plan.ts'
import { bytesOf, toValues, type SafetensorsDType } from './safetensors/dtypes.ts'
import { describeNames, openSafetensors, type SafetensorsFile } from './safetensors/format.ts'
import { checkPlace, ownersOf, type CheckpointState } from './owners.ts'

/** Options of `loadCheckpoint`. */
export interface LoadOptions {
  /**
   * Whether to throw for tensors that exist only in the checkpoint, and for buffers that exist only
   * in the model. If false, such a buffer keeps its values. A parameter missing in the checkpoint
   * is always an error. Default true.
   */
  readonly strict?: boolean
}

const readOptions = declareOptions({
  strict: flag.default(true),
} satisfies Rules<LoadOptions>)

/** All loaded values but the tensors. */
export interface LoadedCheckpoint extends LatestCheckpoint {
  /** The `data` passed to `saveCheckpoint`; null if there was none. */
  readonly data: unknown
}

/**
 * Loads a checkpoint, saved in any layout, into a model and an optimizer. Each rank reads only the
 * parts of tensors that it holds. All ranks of the group must call this function. Nothing is
 * changed until all ranks have read their parts.
 *
 * @param directory - a checkpoint, or a folder, whose newest complete checkpoint is loaded
 * @param state - built as for training, with the same names and sizes
 * @param group - all ranks that hold a part; default: only this process
 *
 * @example
 * const { step, data } = await loadCheckpoint('checkpoints', { model, optimizer }, group)
 * loader.loadState(data as LoaderState)
 *
 * @throws ERR_TSR_CHECKPOINT_NONE when there is none; ERR_TSR_CHECKPOINT_MODEL when it belongs to
 *   another model, ERR_TSR_CHECKPOINT_MISSING and ERR_TSR_CHECKPOINT_SHAPE for a tensor;
 *   ERR_TSR_CHECKPOINT_UNFINISHED, ERR_TSR_CHECKPOINT_DAMAGED; ERR_TSR_ARGUMENT for an invalid or
 *   unknown option or key of the state. If one rank throws, all do.
 */
export async function loadCheckpoint(
  directory: string,
  state: CheckpointState,
  group?: ProcessGroup,
  options: LoadOptions = {},
): Promise<LoadedCheckpoint> {
  return await traceWait('checkpoint', { name: 'load' }, async () => {
    checkPlace(directory, group)
    const latest = await latestFor('load', directory, group)
    if (latest === undefined) throw tsrError('ERR_TSR_CHECKPOINT_NONE', { directory })
    let owners: readonly PieceOwner[] = []
    let isStrict = true
    const requested: (readonly Part[])[] = []
    let checkpoint!: Checkpoint
    const ranks = await onAllRanks(group, 'load', async () => {
      isStrict = readOptions(options).strict
      owners = ownersOf(state)
      checkpoint = await openFinished(latest.path)
      const names = new Set(Object.keys(checkpoint.contents.tensors))
      for (const owner of owners) requested.push(owner.parts(names, isStrict))
      return requested.flat().map(({ name }) => name)
    })
    const { data, hasOptimizer } = checkpoint.contents
    const pieces: Piece[][] = []
    await onAllRanks(group, 'load', async () => {
      if (state.optimizer !== undefined && !hasOptimizer) {
        const facts = { path: latest.path, tensor: 'state of an optimizer', found: 'a model only' }
        throw tsrError('ERR_TSR_CHECKPOINT_MISSING', facts)
      }
      if (isStrict) checkNames(checkpoint, ranks.flat())
      for (const parts of requested) pieces.push(await readParts(checkpoint, parts))
    })
    // Load the optimizer first: loading throws if the state belongs to another kind of optimizer.
    for (const [i, owner] of [...owners.entries()].reverse()) {
      await onAllRanks(group, 'load', async () => {
        await owner.load(pieces[i]!)
      })
    }
    return { ...latest, data }
  })
}

/**
 * @param requested - the names of the tensors that any rank requests
 * @throws ERR_TSR_CHECKPOINT_MODEL for tensors that exist only in the checkpoint
 */
function checkNames({ path, contents: { tensors } }: Checkpoint, requested: string[]) {
  const names = new Set(requested)
  const more = Object.keys(tensors).filter((name) => !isStateName(name) && !names.has(name))
  if (more.length === 0) return
  const less = [...names].filter((name) => !Object.hasOwn(tensors, name))
  throw tsrError('ERR_TSR_CHECKPOINT_MODEL', {
    path,
    more: describeNames(more),
    less: describeNames(less),
  })
}

interface PartInProgress {
  readonly part: Part
  readonly dtype: SafetensorsDType
  values: PieceValues | undefined
  /** The number of values read so far. */
  filled: number
}

/** The stored pieces to read from one file, each with the requested parts that overlap with it. */
type ReadTasks = Map<StoredPiece, PartInProgress[]>

/**
 * Reads the requested parts of tensors from the stored pieces that overlap with them. Reads each
 * stored piece once and completely, to check its checksum.
 *
 * @throws ERR_TSR_CHECKPOINT_MISSING, ERR_TSR_CHECKPOINT_SHAPE, ERR_TSR_CHECKPOINT_DAMAGED
 */
async function readParts(checkpoint: Checkpoint, parts: readonly Part[]): Promise<Piece[]> {
  const requests = parts.map((part) => requestOf(checkpoint, part))
  for (const [name, tasks] of tasksByFile(checkpoint, requests)) {
    const path = join(checkpoint.path, name)
    const file = await openSafetensors(path).catch((error: unknown) => {
      const [overlapping] = tasks.values()
      throw damaged(path, overlapping![0]!.part.name, error)
    })
    try {
      for (const task of tasks) await readTask(file, ...task)
    } finally {
      await file.close()
    }
  }
  return requests.map((each) => {
    const size = partSize(each.part)
    if (each.filled !== size) {
      const problem = `it has ${each.filled} of the ${size} values that this rank needs`
      throw damaged(checkpoint.path, each.part.name, new Error(problem))
    }
    return { ...each.part, values: valuesOf(each) }
  })
}

function requestOf({ path, contents }: Checkpoint, part: Part): PartInProgress {
  const tensor = Object.hasOwn(contents.tensors, part.name)
    ? contents.tensors[part.name]
    : undefined
  if (tensor === undefined) {
    const found = describeNames(Object.keys(contents.tensors))
    throw tsrError('ERR_TSR_CHECKPOINT_MISSING', { path, tensor: part.name, found })
  }
  const { dtype, shape } = tensor
  const [has, wants] = [`[${shape.join(', ')}]`, `[${part.shape.join(', ')}]`]
  if (has === wants) return { part, dtype, values: undefined, filled: 0 }
  throw tsrError('ERR_TSR_CHECKPOINT_SHAPE', { path, tensor: part.name, has, wants })
}

function valuesOf(request: PartInProgress): PieceValues {
  const { part, dtype } = request
  const bytes = partSize(part) * bytesOf(dtype)
  return (request.values ??= toValues(dtype, new ArrayBuffer(bytes)) as PieceValues)
}

function tasksByFile(
  { contents }: Checkpoint,
  requests: readonly PartInProgress[],
): Map<string, ReadTasks> {
  const files = new Map<string, ReadTasks>()
  for (const each of requests) {
    const { name, shape } = each.part
    for (const stored of contents.tensors[name]!.pieces) {
      if (!haveCommon({ ...stored, name, shape }, each.part)) continue
      const tasks = files.get(stored.file) ?? new Map<StoredPiece, PartInProgress[]>()
      files.set(stored.file, tasks)
      tasks.set(stored, [...(tasks.get(stored) ?? []), each])
    }
  }
  return files
}

async function readTask(
  file: SafetensorsFile,
  stored: StoredPiece,
  requests: readonly PartInProgress[],
) {
  const { key } = stored
  const { name, shape } = requests[0]!.part
  const part = { ...stored, name, shape }
  try {
    const values = (await file.read(key)) as PieceValues
    // Check dtype and size too: the header of the file has no checksum.
    const isSame = file.entry(key).dtype === requests[0]!.dtype && values.length === partSize(part)
    if (!isSame) throw new Error(`${key} has another type or shape`)
    const bytes = new Uint8Array(values.buffer, values.byteOffset, values.byteLength)
    if (crc32(bytes) !== stored.crc32) throw new Error(`the checksum of ${key} does not match`)
    const [first] = requests
    // If the layout is the same as when saving, no copy is needed.
    if (requests.length === 1 && keyOf(first!.part) === key) {
      first!.values = values
      first!.filled = values.length
      return
    }
    for (const each of requests) {
      each.filled += copyCommon({ ...part, values }, { ...each.part, values: valuesOf(each) })
    }
  } catch (error) {
    throw damaged(file.path, name, error)
  }
}

function damaged(path: string, tensor: string, error: unknown) {
  const { code, message } = error as NodeJS.ErrnoException
  // Pass on errors of the file system unchanged.
  if (code !== undefined && !isTsrError(error)) return error as Error
  const problem = isTsrError(error) ? String(error.facts['problem'] ?? message) : message
  return tsrError('ERR_TSR_CHECKPOINT_DAMAGED', { path, tensor, problem }, { cause: error })
}
