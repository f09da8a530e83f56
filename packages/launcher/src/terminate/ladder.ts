import { setTimeout as pause } from 'node:timers/promises'
import { Deadline } from '@tsrun/core'
import { livingGroups } from '../spawn/process-group.ts'
import type { RankProcess } from '../spawn/rank-process.ts'

export interface LadderOptions {
  /** Milliseconds between SIGTERM and SIGKILL. */
  readonly grace: number
  /** Ends the grace at once. */
  readonly kill: AbortSignal
  /** Told which ranks get SIGKILL because the grace is over. */
  readonly onGraceOver: (ranks: number[]) => void
}

/** Milliseconds after which the kernel has had its time to end a killed process. */
const KILL_TIME = 5000

/**
 * Stops all processes of the ranks' groups: SIGTERM, then after the grace SIGKILL. Returns when no
 * process is left.
 */
export async function stopGroups(
  ranks: readonly RankProcess[],
  options: LadderOptions,
): Promise<void> {
  for (const rank of ranks) rank.stop('SIGTERM')
  await untilGone(ranks, Deadline.after(options.grace), options.kill)
  const left = remaining(ranks)
  if (left.length === 0) return
  if (!options.kill.aborted) options.onGraceOver(left.map(({ rank }) => rank))
  for (const rank of left) rank.stop('SIGKILL')
  await untilGone(left, Deadline.after(KILL_TIME), new AbortController().signal)
}

/** Polls, because the kernel tells of the end of a child, but not of a group. */
async function untilGone(
  ranks: readonly RankProcess[],
  deadline: Deadline,
  cut: AbortSignal,
): Promise<void> {
  for (let wait = 1; !deadline.expired && !cut.aborted; wait = Math.min(50, wait * 2)) {
    if (remaining(ranks).length === 0) return
    await pause(Math.min(wait, deadline.remaining()), undefined, { signal: cut }).catch(
      () => undefined,
    )
  }
}

/** The ranks of whose groups some process still runs. */
function remaining(ranks: readonly RankProcess[]): readonly RankProcess[] {
  const left = ranks.filter((rank) => rank.groupAlive)
  if (left.length === 0 || left.some((rank) => rank.end === undefined)) return left
  const living = livingGroups()
  return living === undefined ? left : left.filter(({ pid }) => living.has(pid))
}
