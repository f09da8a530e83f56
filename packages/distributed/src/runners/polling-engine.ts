import { monotonicNow } from '@tsrun/core'
import type { Engine } from '../engine/engine.ts'
import type { BlockingTransport } from '../transports/transport.ts'
import { keepApart } from './placement.ts'
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
/** Every LOOKS-th round polls all links. The other rounds poll only links that expect data. */
const LOOKS = 8

/** Polls an engine whose transport can block. When idle, spins and yields, then sleeps. */
export function createPollingEngine(
  engine: Engine,
  transport: BlockingTransport | undefined,
  sleep = (milliseconds: number): void => {
    transport?.sleep(milliseconds)
  },
) {
  const onYield = transport?.place && keepApart(transport.place)
  let rounds = 0
  let looks = 0
  let idle = 0
  let idleSince = 0
  let nextDeadline = 0

  /** Returns the current time in milliseconds if the engine may yield, and otherwise 0. */
  const beginYield = (): number => {
    if (++idle > YIELDS) return 0
    const now = monotonicNow()
    if (idle === 1) idleSince = now
    return now - idleSince < YIELD_TIME ? now : 0
  }

  const lookAtDeadlines = (): number => {
    nextDeadline = engine.checkDeadlines()
    return monotonicNow()
  }

  /** Yields or sleeps once. Returns whether the time `end` has passed. */
  const rest = (end: number): boolean => {
    const begun = transport === undefined ? 0 : beginYield()
    if (begun > 0) {
      if (transport!.spin?.() === true) return false
      transport!.yield()
      onYield?.(begun)
      return false
    }
    const now = lookAtDeadlines()
    if (now >= end) return true
    const until = Math.min(end, nextDeadline, now + SLICE)
    sleep(Math.max(0, Math.ceil(until - now)))
    return false
  }

  /** Polls until `isDone` returns true, for at most `milliseconds`. */
  const runUntil = (isDone: () => boolean, milliseconds: number): void => {
    const end = milliseconds === Infinity ? Infinity : monotonicNow() + milliseconds
    while (!isDone()) {
      if (engine.progress(++looks % LOOKS === 0)) {
        idle = 0
        if (++rounds % ROUNDS === 0) lookAtDeadlines()
        if (end !== Infinity && monotonicNow() >= end) return
      } else if (rest(end)) {
        return
      }
    }
  }

  return {
    runUntil,
    poll(): void {
      if (!engine.progress()) engine.checkDeadlines()
    },
    /**
     * Shuts down gracefully: sends all queued data and a close frame, waits until the peers have
     * closed theirs, and closes the connections. Closing a socket with unread bytes would reset it
     * and lose sent data.
     */
    leave(): void {
      engine.sayGoodbye()
      runUntil(() => !engine.hasOutgoing() && !engine.hasPeers(), LEAVE_TIME)
      // Nothing polls the engine after the shutdown.
      engine.failAll(destroyedError('An operation'))
      transport?.close()
    },
  }
}
