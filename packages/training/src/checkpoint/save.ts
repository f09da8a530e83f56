import { join, resolve } from 'node:path'
import { setImmediate } from 'node:timers/promises'
import { inspect, isDeepStrictEqual } from 'node:util'
import { argumentError, count, declareOptions, flag, where, type Rules } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { traceWait } from '@tsrun/distributed/record'
import type { Parameter } from '../model/parameter.ts'
import { sizeOf } from '../tfjs/host-arrays.ts'
import { onAllRanks } from './coordination.ts'
import { newName } from './folders.ts'
import type { HeldPiece } from './piece.ts'
import { checkPlace, ownersOf, type CheckpointState } from './owners.ts'
import { openOwnMemory } from './own-memory.ts'
import { isLarge } from './write-safetensors.ts'
import { withSaveErrors, writeCheckpoint, type RankShare } from './write.ts'
import { startWriter } from './writer.ts'

/** The state that `saveCheckpoint` saves: model, optimizer, step, and position in the data. */
export interface SavedState extends CheckpointState {
  /** The number of completed training steps. */
  readonly step: number
  /** The position of the data loader, or any other JSON value. The value of rank 0 is saved. */
  readonly data?: unknown
}

/** Options of `saveCheckpoint`. */
export interface SaveOptions {
  /** The number of newest checkpoints to keep, including this one; default: all. */
  readonly keep?: number
  /**
   * Whether to return at once, and read, check and write the values while training continues; see
   * `SavedCheckpoint.done`. Values that training replaces meanwhile stay in memory until they are
   * written: at most one more copy of the parameters and of the optimizer state. Default false.
   */
  readonly background?: boolean
  /**
   * Whether to compare replicas by CRC-32, and throw if they differ. If false, saves the values of
   * any replica, for replicas that differ by rounding. Default true.
   */
  readonly compare?: boolean
  /** Whether to throw when a parameter, a buffer or optimizer state is NaN or infinite; default true. */
  readonly finite?: boolean
}

const readOptions = declareOptions({
  keep: where<number>(
    (value) => value === Infinity || (Number.isSafeInteger(value) && Number(value) >= 1),
    'a whole number from 1',
  ).default(Infinity),
  background: flag.default(false),
  compare: flag.default(true),
  finite: flag.default(true),
} satisfies Rules<SaveOptions>)

const stepRule = count()

/** A checkpoint that was saved or is still being written. */
export interface SavedCheckpoint {
  /** The folder of the checkpoint, `<directory>/step-<step>`. The folder exists once the save is done. */
  readonly path: string
  /**
   * Resolves when the checkpoint is on disk, and rejects if writing failed, a value is not finite,
   * replicas differ or the ranks do not hold one complete model. Await this promise before you leave the
   * group. The next save also waits for it, and throws its error if nobody awaited the promise.
   */
  readonly done: Promise<void>
}

/**
 * Saves a model, an optimizer and the position in the data as `<directory>/step-<step>`. Each rank
 * writes a safetensors file with the tensors that only it holds; tensors that are equal on several ranks
 * are written by one of them. The checkpoint can be loaded in any other layout; see `loadCheckpoint`.
 * All ranks of the group must call this.
 *
 * The checkpoint gets its name when its files are on the disk, so a crash at any time leaves the
 * previous checkpoint intact. A folder belongs to one job, and all its hosts must have access to it.
 *
 * @param group - all ranks that hold a part, for example the world; default: only this process
 *
 * @example
 * await saveCheckpoint('checkpoints', { model, optimizer, step, data: loader.state() }, group)
 *
 * @throws ERR_TSR_CHECKPOINT_WRITE on a full disk, a read-only folder, ...; ERR_TSR_CHECKPOINT_PIECES
 *   when the ranks do not hold one complete model, or replicas differ; ERR_TSR_NOT_FINITE when a value is
 *   NaN or infinite; ERR_TSR_CHECKPOINT_PRUNE when the checkpoint is saved, but an older one cannot be
 *   removed; ERR_TSR_OPERATION_TIMEOUT; ERR_TSR_ARGUMENT when the ranks pass different arguments, or when
 *   the state or an option is invalid or unknown. If one rank throws, all do.
 */
export async function saveCheckpoint(
  directory: string,
  state: SavedState,
  group?: ProcessGroup,
  options: SaveOptions = {},
): Promise<SavedCheckpoint> {
  checkPlace(directory, group)
  const folder = resolve(directory)
  const { path, background } = await inOrder(group ?? folder, (failed) =>
    traceWait('checkpoint', { name: 'save' }, () =>
      save(folder, state, group, options, failed?.unreported),
    ),
  )
  return {
    path,
    get done() {
      return Promise.resolve(background?.done).finally(() => {
        delete background?.unreported
      })
    },
  }
}

/** Prepares for the first background save: starts the writer thread and creates its group. */
export async function prepareSaves(
  parameters: readonly Pick<Parameter, 'shape'>[],
  group: ProcessGroup,
): Promise<void> {
  const bytes = parameters.reduce((sum, { shape }) => sum + 4 * sizeOf(shape), 0)
  if (isLarge(bytes)) {
    try {
      startWriter()
      openOwnMemory()
    } catch {
      // Ignore the error: the first save tries again, and throws on all ranks if it fails.
    }
  }
  await writersOf(group)
}

async function save(
  folder: string,
  state: SavedState,
  group: ProcessGroup | undefined,
  options: SaveOptions,
  unreported: BackgroundSave['unreported'],
): Promise<{ readonly path: string; readonly background?: BackgroundSave }> {
  const rank = group?.rank ?? 0
  const pieces: HeldPiece[] = []
  const release = () => {
    for (const { values } of pieces) if ('read' in values) values.release()
  }
  let own!: Omit<RankShare, 'name'>
  let writing: BackgroundSave | undefined
  try {
    const ranks = await onAllRanks(group, 'save', async () => {
      if (unreported !== undefined) throw unreported.error
      const { background, compare, keep, finite } = readOptions(options)
      const owners = ownersOf(state)
      const { step, data } = state
      stepRule.check('step', step)
      const hasOptimizer = state.optimizer !== undefined
      // Copy the data, which the caller may change while it is written.
      const facts = { step, data: data === undefined ? null : copyOf(data), hasOptimizer }
      own = { folder, pieces, compare, finite, facts, keep }
      for (const owner of owners) pieces.push(...(await owner.pieces()))
      const name = await withSaveErrors(folder, rank, () =>
        rank === 0 ? newName(folder, step) : undefined,
      )
      return { name, common: { step, optimizer: hasOptimizer, background, compare } }
    })
    checkAgreement(ranks.map(({ common }) => common))
    const name = ranks[0]!.name!
    const share = { ...own, name }
    if (ranks[0]!.common.background) {
      const done = setImmediate().then(async () => writeCheckpoint(share, await writersOf(group)))
      writing = { done: done.finally(release) }
      writing.done.catch((error: unknown) => {
        if (writing !== undefined) writing.unreported = { error }
      })
    } else await writeCheckpoint(share, group)
    return { path: join(folder, name), ...(writing && { background: writing }) }
  } finally {
    if (writing === undefined) release()
  }
}

/** @throws ERR_TSR_ARGUMENT when the arguments of a rank differ from those of rank 0 */
function checkAgreement(ranks: readonly Readonly<Record<string, unknown>>[]) {
  for (const [name, wanted] of Object.entries(ranks[0]!)) {
    const rank = ranks.findIndex((each) => each[name] !== wanted)
    if (rank === -1) continue
    throw argumentError(
      name,
      `${String(ranks[rank]![name])} on rank ${rank}`,
      `${String(wanted)}, as on rank 0`,
    )
  }
}

function copyOf(value: unknown): unknown {
  let copy: unknown
  try {
    copy = JSON.parse(JSON.stringify(value))
  } catch {
    copy = undefined
  }
  if (isDeepStrictEqual(copy, value)) return copy
  throw argumentError('data', inspect(value), 'a value that JSON preserves')
}

/** A save whose files are written while training continues. */
interface BackgroundSave {
  readonly done: Promise<void>
  /** The error of a failed save that no call has reported yet. */
  unreported?: { readonly error: unknown }
}

interface SaveQueue {
  /** Settles when the last save has ended. If the save failed in the background, resolves to the save. */
  last: Promise<BackgroundSave | undefined>
  /** The group for messages of background saves; see `writersOf`. */
  writers?: Promise<ProcessGroup | undefined>
}

const queuesOfGroups = new WeakMap<ProcessGroup, SaveQueue>()
/** The queues of saves without a group, by folder. */
const queuesOfFolders = new Map<string, SaveQueue>()

function queueOf(key: ProcessGroup | string): SaveQueue {
  const known = typeof key === 'string' ? queuesOfFolders.get(key) : queuesOfGroups.get(key)
  const queue = known ?? { last: Promise.resolve(undefined) }
  if (typeof key === 'string') queuesOfFolders.set(key, queue)
  else queuesOfGroups.set(key, queue)
  return queue
}

/**
 * Runs the saves of a group, or of this process to a folder, one after another. `save` receives the
 * previous save if that save failed in the background.
 */
async function inOrder<T extends { readonly background?: BackgroundSave }>(
  key: ProcessGroup | string,
  save: (failed: BackgroundSave | undefined) => Promise<T>,
): Promise<T> {
  const queue = queueOf(key)
  const saving = queue.last.then(save)
  queue.last = saving.then(
    ({ background }) =>
      background?.done.then(
        () => undefined,
        () => background,
      ),
    () => undefined,
  )
  return await saving
}

/** Returns a second group of the same ranks for background saves, which each rank runs at its own pace. */
async function writersOf(group: ProcessGroup | undefined): Promise<ProcessGroup | undefined> {
  if (group === undefined || group.size === 1) return undefined
  const queue = queueOf(group)
  const members = Array.from({ length: group.size }, (_, rank) => rank)
  // `newGroup` sends nothing through `group`, so training may use `group` meanwhile.
  queue.writers ??= group.newGroup(members, { name: `checkpoints of ${group.name}` })
  return await queue.writers
}
