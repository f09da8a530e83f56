import { monotonicNow } from '@tsrun/core'
import type { Engine } from '../engine/engine.ts'
import type { BlockingTransport } from '../transports/transport.ts'
import { keepApart, type OnYield } from './placement.ts'
import { destroyedError } from './runner.ts'

/**
 * Maximum number of times that an idle engine yields its core before it sleeps. With more ranks than
 * cores, yielding is faster than spinning and than sleeping at once.
 */
const YIELDS = 100
/**
 * Maximum milliseconds that an idle engine yields before it sleeps. If other threads compute, a
 * yield may last a whole time slice. A sleeping thread, in contrast, is woken as soon as its
 * message arrives.
 */
const YIELD_TIME = 0.2
/** Longest sleep in milliseconds, so that time-outs and aborts are noticed. */
const SLICE = 100
/** Maximum milliseconds that a graceful shutdown waits for peers that do not read. */
export const LEAVE_TIME = 2000
/** Number of polling rounds between two checks of the deadlines. */
const ROUNDS = 1024
/**
 * Number of rounds for each round that polls all links. Other rounds poll only links from which
 * data is expected, because each poll is a system call.
 */
const LOOKS = 8

/** Polls an engine whose transport can block. When idle, spins and yields, then sleeps. */
export class PollingEngine {
  readonly engine: Engine
  readonly #transport: BlockingTransport | undefined
  readonly #sleep: (milliseconds: number) => void
  readonly #onYield: OnYield | undefined
  #rounds = 0
  #looks = 0
  #idle = 0
  #idleSince = 0
  /** Time in milliseconds when the last yield began. */
  #now = 0
  #nextDeadline = 0

  constructor(
    engine: Engine,
    transport: BlockingTransport | undefined,
    sleep = (milliseconds: number): void => {
      transport?.sleep(milliseconds)
    },
  ) {
    this.engine = engine
    this.#transport = transport
    this.#sleep = sleep
    this.#onYield = transport?.place && keepApart(transport.place)
  }

  /** Polls until `isDone` returns true, for at most `milliseconds`. */
  runUntil(isDone: () => boolean, milliseconds: number): void {
    const end = milliseconds === Infinity ? Infinity : monotonicNow() + milliseconds
    while (!isDone()) {
      if (this.engine.progress(++this.#looks % LOOKS === 0)) {
        this.#idle = 0
        if (++this.#rounds % ROUNDS === 0) this.#lookAtDeadlines()
        if (end !== Infinity && monotonicNow() >= end) return
      } else if (this.#rest(end)) {
        return
      }
    }
  }

  poll(): void {
    if (!this.engine.progress()) this.engine.checkDeadlines()
  }

  /**
   * Shuts down gracefully: sends all queued data and a close frame, waits until the peers have
   * closed theirs, and closes the connections. Closing a socket with unread bytes would reset it
   * and lose sent data.
   */
  leave(): void {
    this.engine.sayGoodbye()
    this.runUntil(() => !this.engine.hasOutgoing && !this.engine.hasPeers, LEAVE_TIME)
    // Nothing polls the engine after this.
    this.engine.failAll(destroyedError('An operation'))
    this.#transport?.close()
  }

  /** Yields or sleeps once. Returns whether the time `end` has passed. */
  #rest(end: number): boolean {
    if (this.#transport !== undefined && this.#mayYield()) {
      if (this.#transport.spin?.() === true) return false
      this.#transport.yield()
      this.#onYield?.(this.#now)
      return false
    }
    const now = this.#lookAtDeadlines()
    if (now >= end) return true
    const until = Math.min(end, this.#nextDeadline, now + SLICE)
    this.#sleep(Math.max(0, Math.ceil(until - now)))
    return false
  }

  #mayYield(): boolean {
    if (++this.#idle > YIELDS) return false
    const now = monotonicNow()
    if (this.#idle === 1) this.#idleSince = now
    this.#now = now
    return now - this.#idleSince < YIELD_TIME
  }

  #lookAtDeadlines(): number {
    this.#nextDeadline = this.engine.checkDeadlines()
    return monotonicNow()
  }
}
