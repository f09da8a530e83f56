import type { ProcessGroup } from '@tsrun/distributed'

/** What is written while training goes on. */
export interface Writing {
  readonly done: Promise<void>
  /** An error that nobody has asked for yet. */
  untold?: { readonly error: unknown }
}

/** By group, or by folder where there is no group: the last save, when it is over. */
const turns = new Map<ProcessGroup | string, Promise<Writing | undefined>>()

/**
 * Saves of one group, or to one folder, one behind the other: also those that are called before the
 * one before has come back.
 *
 * @param save - gets what was written in the background before it, if that has failed
 */
export async function inTurn<T extends { readonly writing?: Writing }>(
  key: ProcessGroup | string,
  save: (failed: Writing | undefined) => Promise<T>,
): Promise<T> {
  const saving = (turns.get(key) ?? Promise.resolve(undefined)).then(save)
  const over = saving.then(
    ({ writing }) =>
      writing?.done.then(
        () => undefined,
        () => writing,
      ),
    () => undefined,
  )
  turns.set(key, over)
  void over.then((failed) => {
    if (failed === undefined && turns.get(key) === over) turns.delete(key)
  })
  return await saving
}
