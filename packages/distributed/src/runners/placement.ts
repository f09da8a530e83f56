import { monotonicNow } from '@tsrun/core'
import { allowedCores, currentCore, moveToCore } from '@tsrun/native'
import type { LocalPlace } from '../transports/transport.ts'

/** Milliseconds: a yield that took longer gave the core to another thread. */
const LONG = 0.0015
/** Long yields in a row before the thread moves. */
const PATIENCE = 4
/** Milliseconds between two moves. */
const PAUSE = 10

/**
 * Keeps the engines of a host's ranks on different cores, where there is a core for each. The kernel
 * wakes a thread on the core of the thread that woke it, so two ranks that exchange small messages end
 * up sharing a core while another one idles, until the kernel balances the load. A thread that finds
 * that it shares its core moves to the core of its local rank. It is not bound there: the kernel may
 * move it again, so two jobs never get in each other's way.
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

  /** A yield that began at `before` has returned. */
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
