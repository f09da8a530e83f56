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
