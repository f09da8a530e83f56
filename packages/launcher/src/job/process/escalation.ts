import { setTimeout as pause } from 'node:timers/promises'
import { Deadline } from '@tsrun/core'
import { blamesOthers, livingGroups, type RankProcess } from './rank-process.ts'

/** Milliseconds for the kernel to end a killed process. */
const KILL_TIME = 5000

/**
 * Sends SIGTERM to all processes of the ranks' groups. After the grace period, or when `kill` aborts,
 * sends SIGKILL. Returns when no process is left.
 */
export async function stopGroups(
  ranks: readonly RankProcess[],
  grace: number,
  kill: AbortSignal,
  onGraceOver: (ranks: number[]) => void,
): Promise<void> {
  for (const rank of ranks) rank.stop('SIGTERM')
  await untilGone(ranks, Deadline.after(grace), kill)
  const left = remaining(ranks)
  if (left.length === 0) return
  if (!kill.aborted) onGraceOver(left.map(({ rank }) => rank))
  for (const rank of left) rank.stop('SIGKILL')
  await untilGone(left, Deadline.after(KILL_TIME))
}

/** Polls until no process is left, because the kernel reports the end of a child but not of a group. */
async function untilGone(
  ranks: readonly RankProcess[],
  deadline: Deadline,
  cut?: AbortSignal,
): Promise<void> {
  for (let wait = 1; !deadline.expired && cut?.aborted !== true; wait = Math.min(50, wait * 2)) {
    if (remaining(ranks).length === 0) return
    await pause(Math.min(wait, deadline.remaining()), undefined, { signal: cut }).catch(
      () => undefined,
    )
  }
}

function remaining(ranks: readonly RankProcess[]): readonly RankProcess[] {
  const left = ranks.filter((rank) => rank.groupAlive)
  if (left.length === 0 || left.some((rank) => rank.end === undefined)) return left
  const living = livingGroups()
  return living.size === 0 ? left : left.filter(({ pid }) => living.has(pid))
}

type SettlingRank = Pick<RankProcess, 'end' | 'ended' | 'error'>

/** The exit code of a program that handles SIGTERM, by convention. */
export const TERMINATED = 143

/** Milliseconds to wait for the root cause after a failure that may be a consequence. */
const SETTLING_TIME = 300

/**
 * Waits until it is clear which rank failed first. Keeps waiting while a rank that reported an error still
 * runs, and while every failure may be a consequence of another failure or of a SIGTERM to the job.
 */
export async function settle(
  ranks: readonly SettlingRank[],
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

/** Whether all failed ranks were ended by SIGTERM. A scheduler may signal them before the launcher. */
export function areTerminated(ranks: readonly SettlingRank[]): boolean {
  return ranks.every(({ end }) => {
    if (end === undefined || end.exitCode === 0) return true
    return end.signal === 'SIGTERM' || end.exitCode === TERMINATED
  })
}

function isClear(ranks: readonly SettlingRank[], hasOtherHosts: boolean): boolean {
  if (areTerminated(ranks)) return false
  const running = ranks.filter((rank) => rank.end === undefined)
  if (running.length === 0 && !hasOtherHosts) return true
  if (running.some((rank) => rank.error !== undefined)) return false
  return ranks.some(isCulprit)
}

function isCulprit({ end, error }: SettlingRank): boolean {
  if (end === undefined || end.exitCode === 0) return false
  if (end.signal !== null) return true
  return error !== undefined && !blamesOthers(error)
}
