import { isTsrError, reviveTsrError, tsrError, type SerializedTsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'

type Outcome<T> = { readonly value: T } | { readonly error: SerializedTsrError }

/**
 * Runs something on every rank. When it fails on one, it fails on all, each with its own error or with
 * that of the first rank that has one.
 *
 * @param timeout - milliseconds that it may take longer on another rank; default: the group's
 * @returns what it made on each rank
 */
export async function together<T>(
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
    const what = `rank ${String(group.rank)} failed: ${String(error)}`
    const told = isTsrError(error) ? error : tsrError('ERR_TSR_INTERNAL', { what })
    outcome = { error: told.toJSON() }
  }
  const outcomes = await group.allGatherObject(outcome, {
    label: 'checkpoint',
    ...(timeout !== undefined && { timeout }),
  })
  if (failure !== undefined) throw failure.error
  return outcomes.map((each) => {
    if ('error' in each) throw reviveTsrError(each.error)
    return each.value
  })
}
