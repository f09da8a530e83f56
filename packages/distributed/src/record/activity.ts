import type { RankStatus } from './status-page.ts'

/**
 * The activity of a rank, as the dashboard and all commands show it. Outside of operations,
 * `computing` and `idle` are measured. A rank between them, or without a measurement, is `running`.
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
 * What a rank does.
 *
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
