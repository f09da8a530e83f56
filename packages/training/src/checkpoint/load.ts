import { join } from 'node:path'
import { crc32 } from 'node:zlib'
import { declareOptions, flag, isTsrError, tsrError, type Rules } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { traceWait } from '@tsrun/distributed/record'
import type { Contents, StoredPiece } from './contents.ts'
import { onAllRanks } from './coordination.ts'
import {
  latestCheckpoint,
  openFinished,
  type Checkpoint,
  type LatestCheckpoint,
} from './folders.ts'
import {
  commonRuns,
  copyCommon,
  isStateName,
  partSize,
  type Part,
  type Piece,
  type PieceOwner,
  type PieceValues,
} from './piece.ts'
import { keyOf } from './plan.ts'
import { bytesOf, toValues, type SafetensorsDType } from './safetensors/dtypes.ts'
import { describeNames, openSafetensors, type SafetensorsFile } from './safetensors/read.ts'
import { checkPlace, ownersOf, type CheckpointState } from './state.ts'

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
  readonly seeds: Readonly<Record<string, number>>
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
  return await traceWait('checkpoint', { name: 'load' }, () =>
    load(directory, state, group, options),
  )
}

async function load(
  directory: string,
  state: CheckpointState,
  group: ProcessGroup | undefined,
  options: LoadOptions,
): Promise<LoadedCheckpoint> {
  checkPlace(directory, group)
  const latest = await latestCheckpoint(directory, group)
  if (latest === undefined) throw tsrError('ERR_TSR_CHECKPOINT_NONE', { directory })
  let owners: readonly PieceOwner[] = []
  let isStrict = true
  const requested: (readonly Part[])[] = []
  let checkpoint: Checkpoint | undefined
  const ranks = await onAllRanks(group, async () => {
    isStrict = readOptions(options).strict
    owners = ownersOf(state)
    checkpoint = await openFinished(latest.path)
    const names = new Set(Object.keys(checkpoint.contents.tensors))
    for (const owner of owners) requested.push(owner.parts(names, isStrict))
    return requested.flat().map(({ name }) => name)
  })
  const { path, contents } = checkpoint!
  const pieces: Piece[][] = []
  await onAllRanks(group, async () => {
    const hasOptimizer = state.optimizer !== undefined
    checkModel(path, contents, { names: new Set(ranks.flat()), isStrict, hasOptimizer })
    for (const parts of requested) pieces.push(await readParts(checkpoint!, parts))
  })
  // Load the optimizer first: loading throws if the state belongs to another kind of optimizer.
  for (const [i, owner] of [...owners.entries()].reverse()) {
    await onAllRanks(group, async () => {
      await owner.load(pieces[i]!)
    })
  }
  return { ...latest, data: contents.data, seeds: contents.seeds }
}

interface Request {
  /** The names of the tensors that any rank requests. */
  readonly names: ReadonlySet<string>
  readonly isStrict: boolean
  readonly hasOptimizer: boolean
}

function checkModel(path: string, contents: Contents, request: Request): void {
  const { tensors } = contents
  const { names, isStrict } = request
  if (request.hasOptimizer && !contents.hasOptimizer) {
    const tensor = 'state of an optimizer'
    throw tsrError('ERR_TSR_CHECKPOINT_MISSING', { path, tensor, found: 'a model only' })
  }
  if (!isStrict) return
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

/** A stored piece, and the requested parts that overlap with the piece. */
interface ReadTask {
  readonly stored: StoredPiece
  readonly part: Part
  readonly requests: readonly PartInProgress[]
}

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
      throw damaged(path, tasks[0]!.part.name, error)
    })
    try {
      for (const task of tasks) await readTask(file, task)
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
  const [has, wants] = [tensor.shape, part.shape].map((shape) => `[${shape.join(', ')}]`)
  if (has === wants) {
    return { part, dtype: tensor.dtype, values: undefined, filled: 0 }
  }
  const facts = { path, tensor: part.name, has: has!, wants: wants! }
  throw tsrError('ERR_TSR_CHECKPOINT_SHAPE', facts)
}

function valuesOf(request: PartInProgress): PieceValues {
  const { part, dtype } = request
  const make = () => toValues(dtype, new ArrayBuffer(partSize(part) * bytesOf(dtype)))
  return (request.values ??= make() as PieceValues)
}

function tasksByFile(
  { contents }: Checkpoint,
  requests: readonly PartInProgress[],
): Map<string, ReadTask[]> {
  const byName = new Map<string, PartInProgress[]>()
  for (const each of requests) {
    const { name } = each.part
    byName.set(name, [...(byName.get(name) ?? []), each])
  }
  const tasks = new Map<string, ReadTask[]>()
  for (const [name, candidates] of byName) {
    const { shape, pieces } = contents.tensors[name]!
    for (const stored of pieces) {
      const { file, box, range } = stored
      const part = { name, shape, ...(box && { box }), ...(range && { range }) }
      const overlapping = candidates.filter(
        (each) => commonRuns(part, each.part).next().done === false,
      )
      if (overlapping.length === 0) continue
      tasks.set(file, [...(tasks.get(file) ?? []), { stored, part, requests: overlapping }])
    }
  }
  return tasks
}

async function readTask(
  file: SafetensorsFile,
  { stored, part, requests }: ReadTask,
): Promise<void> {
  const { key } = stored
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
    throw damaged(file.path, part.name, error)
  }
}

function damaged(path: string, tensor: string, error: unknown): Error {
  const { code, message } = error as NodeJS.ErrnoException
  // Pass on errors of the file system unchanged.
  if (code !== undefined && !isTsrError(error)) return error as Error
  const problem = isTsrError(error) ? String(error.facts['problem'] ?? message) : message
  return tsrError('ERR_TSR_CHECKPOINT_DAMAGED', { path, tensor, problem }, { cause: error })
}
