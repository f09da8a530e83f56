import { monotonicNow } from '@tsrun/core'
import { allowedCores, currentCore, hasAllCores, moveToCore } from '@tsrun/native'
import type { LocalPlace } from '../transports/transport.ts'

/** Milliseconds. A longer yield shows that another thread used the core. */
const LONG = 0.0015
/** Milliseconds. A longer yield shows that another thread computes on the core. */
const SLICE = 1
/** Number of consecutive long yields before the thread moves. */
const PATIENCE = 4
/** Milliseconds between two moves of a thread to another core. */
const PAUSE = 10

/**
 * Called after a thread has yielded its core.
 * @param before - when the yield began, in milliseconds
 */
export type OnYield = (before: number) => void

/**
 * Spreads the threads of a host's ranks evenly over the cores.
 *
 * The kernel wakes a thread on the core of the thread that wakes it. Two ranks that exchange small messages
 * thus end up on one core while another core idles, until the kernel balances the load. With more ranks
 * than cores, the kernel counts a rank that yields all the time as busy, and may leave three ranks on one
 * core and one on the other. A thread that shares its core moves to the core that its local rank selects
 * among the allowed cores. It is not pinned there: the kernel may move it again, for example if two jobs
 * chose the same core. If more ranks than cores compute, moves may put them on the same core, so the moves
 * stop once this is detected.
 *
 * @returns undefined if the host has only one rank or one core, or if ranks share some of its cores
 */
export function keepApart({ rank, size }: LocalPlace): OnYield | undefined {
  const cores = allowedCores()
  if (size < 2 || cores.length < 2) return undefined
  const isCrowded = size > cores.length
  if (isCrowded && !hasAllCores()) return undefined
  const home = cores[rank % cores.length]!
  let isBarred = false
  let long = 0
  let movedAt = 0
  return (before) => {
    const now = monotonicNow()
    if (isCrowded && now - before > SLICE && currentCore() === home) isBarred = true
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
