import {
  argumentError,
  isTsrError,
  reviveTsrError,
  tsrError,
  type SerializedTsrError,
} from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'

type Outcome<T> = { readonly call: string } & (
  { readonly value: T } | { readonly error: SerializedTsrError }
)

/**
 * Runs a function on every rank and returns all results. If it fails on any rank, throws on all ranks. A
 * rank throws its own error, or else the error of the first rank that failed.
 *
 * @param call - the name of the public function that the user called
 * @throws ERR_TSR_ARGUMENT if a rank called another public function
 */
export async function onAllRanks<T>(
  group: ProcessGroup | undefined,
  call: string,
  run: () => T | Promise<T>,
): Promise<T[]> {
  if (group === undefined || group.size === 1) return [await run()]
  let failure: { readonly error: unknown } | undefined
  let outcome: Outcome<T>
  try {
    outcome = { call, value: await run() }
  } catch (error) {
    failure = { error }
    const what = `rank ${group.rank} failed: ${String(error)}`
    const reported = isTsrError(error) ? error : tsrError('ERR_TSR_INTERNAL', { what })
    outcome = { call, error: reported.toJSON() }
  }
  const outcomes = await group.allGatherObject(outcome, { label: 'checkpoint' })
  if (failure !== undefined) throw failure.error
  for (const [rank, each] of outcomes.entries()) {
    // A rank that runs another function may have sent any value.
    const { call: other = 'another one' } = Object(each) as Partial<Outcome<T>>
    if (other === call) continue
    throw argumentError(
      `the call of rank ${rank}`,
      other,
      `${call}, as on rank ${group.rank}: all ranks make the same calls`,
    )
  }
  return outcomes.map((each) => {
    if ('error' in each) throw reviveTsrError(each.error)
    return each.value
  })
}
