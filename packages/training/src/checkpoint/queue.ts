import { newGroup, type ProcessGroup } from '@tsrun/distributed'

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
  const members = Array.from({ length: group.size }, (_, rank) => rank)
  // Does not use `group`, so that training may use it meanwhile.
  queue.writers ??= newGroup(members, { parent: group, name: `checkpoints of ${group.name}` })
  return await queue.writers
}
