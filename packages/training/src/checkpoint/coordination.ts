import {
  argumentError,
  isTsrError,
  reviveTsrError,
  tsrError,
  type SerializedTsrError,
} from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'

type Outcome<T> = { readonly value: T } | { readonly error: SerializedTsrError }

/**
 * Runs a function on every rank. If the function fails on any rank, throws on all ranks: the rank's
 * own error, or else the error of the first rank that failed.
 *
 * @param timeout - the milliseconds to wait for other ranks; default: the time-out of the group
 * @returns the results of all ranks
 * @throws ERR_TSR_ARGUMENT if a rank is in a call that is not about a checkpoint
 */
export async function onAllRanks<T>(
  group: ProcessGroup | undefined,
  run: () => T | Promise<T>,
  timeout?: number,
): Promise<T[]> {
  if (group === undefined || group.size === 1) return [await run()]
  let failure: { readonly error: unknown } | undefined
  let outcome: Outcome<T>
  try {
    outcome = { value: await run() }
  } catch (error) {
    failure = { error }
    const what = `rank ${group.rank} failed: ${String(error)}`
    const reported = isTsrError(error) ? error : tsrError('ERR_TSR_INTERNAL', { what })
    outcome = { error: reported.toJSON() }
  }
  const outcomes = await group.allGatherObject(outcome, {
    label: 'checkpoint',
    ...(timeout !== undefined && { timeout }),
  })
  if (failure !== undefined) throw failure.error
  const other = outcomes.findIndex((each) => !isOutcome(each))
  if (other >= 0) {
    throw argumentError(
      `the call of rank ${other}`,
      'another one',
      `one about a checkpoint, as on rank ${group.rank}: all ranks make the same calls`,
    )
  }
  return outcomes.map((each) => {
    if ('error' in each) throw reviveTsrError(each.error)
    return each.value
  })
}

/** Whether another rank sent this from `onAllRanks`, and not from another call. */
function isOutcome(received: unknown): boolean {
  if (typeof received !== 'object' || received === null || Array.isArray(received)) return false
  const keys = Object.keys(received)
  return keys.length === 1 && ['value', 'error'].includes(keys[0]!)
}

/** A save whose files are written while training continues. */
export interface BackgroundSave {
  readonly done: Promise<void>
  /** The error of a failed save that no call has reported yet. */
  unreported?: { readonly error: unknown }
}

interface SaveQueue {
  /** Settles when the last save has ended. Resolves to that save if it failed in the background. */
  last: Promise<BackgroundSave | undefined>
  /** The group for messages of background saves; see `writersOf`. */
  writers?: Promise<ProcessGroup | undefined>
}

/** The queues of saves by group. The group is the only object that exists throughout all saves. */
const queuesOfGroups = new WeakMap<ProcessGroup, SaveQueue>()
/** The queues of saves without a group, by folder. Empty queues are removed. */
const queuesOfFolders = new Map<string, SaveQueue>()

function queueOf(key: ProcessGroup | string): SaveQueue {
  const known = typeof key === 'string' ? queuesOfFolders.get(key) : queuesOfGroups.get(key)
  const queue = known ?? { last: Promise.resolve(undefined) }
  if (typeof key === 'string') queuesOfFolders.set(key, queue)
  else queuesOfGroups.set(key, queue)
  return queue
}

/**
 * Runs the saves of a group, or of this process to a folder, one after another.
 *
 * @param key - the group, or the folder
 * @param save - runs a save. Receives the previous save if that save failed in the background
 */
export async function inOrder<T extends { readonly background?: BackgroundSave }>(
  key: ProcessGroup | string,
  save: (failed: BackgroundSave | undefined) => Promise<T>,
): Promise<T> {
  const queue = queueOf(key)
  const saving = queue.last.then(save)
  const end = saving.then(
    ({ background }) =>
      background?.done.then(
        () => undefined,
        () => background,
      ),
    () => undefined,
  )
  queue.last = end
  void end.then((failed) => {
    const isEmpty = failed === undefined && queue.last === end
    if (isEmpty && typeof key === 'string') queuesOfFolders.delete(key)
  })
  return await saving
}

/**
 * Returns a second group of the ranks of `group`, for the messages of a background save. The
 * messages need their own group, because each rank writes at its own pace.
 */
export async function writersOf(
  group: ProcessGroup | undefined,
): Promise<ProcessGroup | undefined> {
  if (group === undefined || group.size === 1) return undefined
  const queue = queueOf(group)
  queue.writers ??= group.split(0, group.rank, { name: `checkpoints of ${group.name}` })
  return await queue.writers
}
