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
 * Keeps the engines of a host's ranks on different cores, if the host has a core for each.
 *
 * The kernel wakes a thread on the core of the thread that wakes it. Two ranks that exchange small
 * messages thus end up on one core while another core idles, until the kernel balances the load. A
 * thread that shares its core moves to another core, which it selects by its local rank among the
 * allowed cores. It is not pinned there: the kernel may move it again, for example if two jobs
 * chose the same core.
 */
export class Placement {
  readonly #home: number
  #isBarred = false
  #long = 0
  #movedAt = 0

  private constructor(home: number) {
    this.#home = home
  }

  /** Returns undefined if the host has only one rank, or fewer cores than ranks. */
  static of({ rank, size }: LocalPlace): Placement | undefined {
    const cores = allowedCores()
    const home = cores[rank]
    return size < 2 || size > cores.length || home === undefined ? undefined : new Placement(home)
  }

  /**
   * Called after the thread has yielded its core.
   * @param before - when the yield began, in milliseconds
   */
  onYield(before: number): void {
    const now = monotonicNow()
    if (now - before < LONG) {
      this.#long = 0
      return
    }
    if (++this.#long < PATIENCE || now - this.#movedAt < PAUSE) return
    this.#long = 0
    this.#movedAt = now
    if (!this.#isBarred && currentCore() !== this.#home) this.#isBarred = !moveToCore(this.#home)
  }
}
