import type { RankStatus } from './status-page.ts'

/**
 * What a rank does, as the dashboard and all commands show it. Outside of operations, a rank is
 * `computing` or `idle` according to its measured CPU time. If the CPU time is between the two or
 * is unknown, the rank is `running`.
 */
export type RankActivity =
  | 'starting'
  | 'running'
  | 'computing'
  | 'idle'
  | 'communicating'
  | 'waiting'
  | 'left'
  | 'ended'
  | 'died'

/**
 * Returns what a rank does.
 * @param computing - the fraction of its time outside of operations in which it computed, if known
 */
export function activityOf(
  { state, end, waitsFor }: Pick<RankStatus, 'state' | 'end' | 'waitsFor'>,
  computing?: number,
): RankActivity {
  if (end !== undefined) return end
  if (state === 'operation') return waitsFor.length > 0 ? 'waiting' : 'communicating'
  if (state !== 'running' || computing === undefined) return state
  if (computing >= 0.5) return 'computing'
  return computing < 0.2 ? 'idle' : 'running'
}
