import { monotonicNow } from '@tsrun/core'
import { allowedCores, currentCore, moveToCore } from '@tsrun/native'
import type { LocalPlace } from '../transports/transport.ts'

/** Yields that took longer, in milliseconds, gave the core to somebody else. */
const LONG = 0.0015
/** Long yields in a row before the thread looks for a better place. */
const PATIENCE = 4
/** Milliseconds between two moves. */
const PAUSE = 10

/**
 * Keeps the engines of a host's ranks on different cores, where there is one for each. The kernel
 * wakes a thread on the core of whoever sent to it, so two ranks that exchange small messages end up
 * on one core and take turns, while another idles, until its balancing notices. A thread that finds
 * itself sharing moves to the core of its number, and stays free to be moved on: nothing is bound, so
 * two jobs never block each other's way.
 */
export class Placement {
  readonly #home: number
  #isBarred = false
  #long = 0
  #movedAt = 0

  private constructor(home: number) {
    this.#home = home
  }

  /** Undefined where the ranks outnumber the cores. */
  static of({ rank, size }: LocalPlace): Placement | undefined {
    const cores = allowedCores()
    const home = cores[rank]
    return size < 2 || size > cores.length || home === undefined ? undefined : new Placement(home)
  }

  /** A yield that began at `before` has come back. */
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
