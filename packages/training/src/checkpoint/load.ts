import { join } from 'node:path'
import { setImmediate } from 'node:timers/promises'
import { crc32 } from 'node:zlib'
import { declareOptions, flag, isTsrError, tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { traceWait } from '@tsrun/distributed/record'
import type { StoredPiece, StoredTensor } from './contents.ts'
import { onAllRanks } from './coordination.ts'
import { latestFor, openFinished, type Checkpoint, type LatestCheckpoint } from './folders.ts'
import {
  copyCommon,
  haveCommon,
  parseStateName,
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
  /** Whether to throw if the model lacks tensors of the checkpoint, such as a head; default true. */
  readonly strict?: boolean
}

const readOptions = declareOptions({ strict: flag.default(true) })

/** The result of `loadCheckpoint`: everything that was loaded except the tensors. */
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
    const requested: (readonly Part[])[] = []
    let checkpoint!: Checkpoint
    const ranks = await onAllRanks(group, 'load', async () => {
      owners = ownersOf(state)
      checkpoint = await openFinished(latest.path)
      const names = new Set(Object.keys(checkpoint.contents.tensors))
      for (const owner of owners) requested.push(owner.parts(names))
      return requested.flat().map(({ name }) => name)
    })
    const { data, hasOptimizer } = checkpoint.contents
    const pieces: Piece[][] = []
    await onAllRanks(group, 'load', async () => {
      if (state.optimizer !== undefined && !hasOptimizer) {
        const facts = { path: latest.path, tensor: 'state of an optimizer', found: 'a model only' }
        throw tsrError('ERR_TSR_CHECKPOINT_MISSING', facts)
      }
      if (readOptions(options).strict) checkNames(checkpoint, ranks.flat())
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

/** Rejects a checkpoint with tensors that no rank requests. */
function checkNames({ path, contents: { tensors } }: Checkpoint, requested: string[]) {
  const names = new Set(requested)
  const own = Object.keys(tensors).filter((name) => parseStateName(name) === undefined)
  const more = own.filter((name) => !names.has(name))
  if (more.length === 0) return
  const less = [...names].filter((name) => !Object.hasOwn(tensors, name))
  throw tsrError('ERR_TSR_CHECKPOINT_MODEL', {
    path,
    more: describeNames(more),
    less: describeNames(less),
  })
}

/** Reads parts of tensors. Stored pieces are read completely, to check their checksums. */
async function readParts(checkpoint: Checkpoint, parts: readonly Part[]): Promise<Piece[]> {
  const files = new Map<string, SafetensorsFile>()
  const open = (path: string) => {
    const file = files.get(path) ?? openSafetensors(path)
    files.set(path, file)
    return file
  }
  const requests = parts.map((part) => [part, storedTensor(checkpoint, part)] as const)
  const pieces: Piece[] = []
  for (const request of requests) pieces.push(await readPart(checkpoint.path, open, ...request))
  return pieces
}

function storedTensor({ path, contents }: Checkpoint, part: Part): StoredTensor {
  const tensor = Object.hasOwn(contents.tensors, part.name)
    ? contents.tensors[part.name]
    : undefined
  if (tensor === undefined) {
    const found = describeNames(Object.keys(contents.tensors))
    throw tsrError('ERR_TSR_CHECKPOINT_MISSING', { path, tensor: part.name, found })
  }
  const [has, wants] = [tensor, part].map(({ shape }) => `[${shape.join(', ')}]`)
  if (has === wants) return tensor
  throw tsrError('ERR_TSR_CHECKPOINT_SHAPE', { path, tensor: part.name, has: has!, wants: wants! })
}

async function readPart(
  folder: string,
  open: (path: string) => SafetensorsFile,
  part: Part,
  { dtype, pieces }: StoredTensor,
): Promise<Piece> {
  const { name, shape } = part
  const size = partSize(part)
  let values: PieceValues | undefined
  let filled = 0
  for (const stored of pieces) {
    const source = { ...stored, name, shape }
    if (!haveCommon(source, part)) continue
    const path = join(folder, stored.file)
    try {
      const found = readStored(open(path), source, dtype)
      if (keyOf(part) === stored.key) {
        // If the layout is the same as when saving, no copy is needed.
        values = found
        filled = found.length
      } else {
        values ??= zeros(dtype, size)
        filled += copyCommon({ ...source, values: found }, { ...part, values })
      }
    } catch (error) {
      throw damaged(path, name, error)
    }
    // Let other work of this process run between reads.
    await setImmediate()
  }
  if (filled === size) return { ...part, values: values ?? zeros(dtype, size) }
  const problem = `it has ${filled} of the ${size} values that this rank needs`
  throw damaged(folder, name, new Error(problem))
}

function zeros(dtype: SafetensorsDType, size: number) {
  return toValues(dtype, new ArrayBuffer(size * bytesOf(dtype))) as PieceValues
}

/** Reads a stored piece. Checks dtype and size too: the header of a file has no checksum. */
function readStored(
  file: SafetensorsFile,
  piece: StoredPiece & Part,
  dtype: SafetensorsDType,
): PieceValues {
  const { key } = piece
  const values = file.read(key) as PieceValues
  const isSame = file.entry(key).dtype === dtype && values.length === partSize(piece)
  if (!isSame) throw new Error(`${key} has another type or shape`)
  if (crc32(values) !== piece.crc32) throw new Error(`the checksum of ${key} does not match`)
  return values
}

function damaged(path: string, tensor: string, error: unknown) {
  const { code, message } = error as NodeJS.ErrnoException
  // Pass on errors of the file system unchanged.
  if (code !== undefined && !isTsrError(error)) return error as Error
  const problem = isTsrError(error) ? String(error.facts['problem'] ?? message) : message
  return tsrError('ERR_TSR_CHECKPOINT_DAMAGED', { path, tensor, problem }, { cause: error })
}
