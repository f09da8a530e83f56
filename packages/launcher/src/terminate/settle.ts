import { setTimeout as pause } from 'node:timers/promises'
import type { RankProcess } from '../spawn/rank-process.ts'

/** Milliseconds that the real culprit gets to be seen before its victims' end stops the job. */
const SETTLING_TIME = 300

/**
 * Waits until it is clear who failed first: while the only failures so far may be the consequence
 * of another rank's, here or on another host, or a rank that has reported an error is still on its
 * way out.
 */
export async function settle(
  ranks: readonly RankProcess[],
  cut: AbortSignal,
  hasOtherHosts: boolean,
): Promise<void> {
  const limit = pause(SETTLING_TIME, true, { signal: cut }).catch(() => true)
  let over = cut.aborted
  while (!over && !isClear(ranks, hasOtherHosts)) {
    const running = ranks.filter((rank) => rank.end === undefined)
    over = await Promise.race([limit, ...running.map((rank) => rank.ended.then(() => false))])
  }
}

function isClear(ranks: readonly RankProcess[], hasOtherHosts: boolean): boolean {
  const running = ranks.filter((rank) => rank.end === undefined)
  if (running.length === 0 && !hasOtherHosts) return true
  if (running.some((rank) => rank.error !== undefined)) return false
  return ranks.some(isCulprit)
}

function isCulprit({ end, error }: RankProcess): boolean {
  if (end === undefined || end.exitCode === 0) return false
  if (end.signal !== null) return true
  return error !== undefined && !error.consequence && error.peers.length === 0
}
