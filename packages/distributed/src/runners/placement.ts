import { monotonicNow } from '@tsrun/core'
import { allowedCores, currentCore, moveToCore } from '@tsrun/native'
import type { LocalPlace } from '../transports/transport.ts'

/** Milliseconds. If a yield takes longer, another thread must have used the core. */
const LONG = 0.0015
/** Number of consecutive long yields before the thread moves. */
const PATIENCE = 4
/** Milliseconds between two moves. */
const PAUSE = 10

/**
 * Called after a thread has yielded its core.
 * @param before - when the yield began, in milliseconds
 */
export type OnYield = (before: number) => void

/**
 * Keeps the engines of a host's ranks on different cores, if the host has a core for each.
 *
 * The kernel wakes a thread on the core of the thread that wakes it. Two ranks that exchange small
 * messages thus end up on one core while another core idles, until the kernel balances the load. A
 * thread that shares its core moves to another core, which it selects by its local rank among the
 * allowed cores. It is not pinned there: the kernel may move it again, for example if two jobs
 * chose the same core.
 *
 * @returns undefined if the host has only one rank, or fewer cores than ranks
 */
export function keepApart({ rank, size }: LocalPlace): OnYield | undefined {
  const cores = allowedCores()
  const home = cores[rank]
  if (size < 2 || size > cores.length || home === undefined) return undefined
  let isBarred = false
  let long = 0
  let movedAt = 0
  return (before) => {
    const now = monotonicNow()
    if (now - before < LONG) {
      long = 0
      return
    }
    if (++long < PATIENCE || now - movedAt < PAUSE) return
    long = 0
    movedAt = now
    if (!isBarred && currentCore() !== home) isBarred = !moveToCore(home)
  }
}
