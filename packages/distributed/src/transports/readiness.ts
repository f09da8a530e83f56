import { addressOf, pollFds, POLLFD_BYTES } from '@tsrun/native'

/** Milliseconds between two polls while events arrive. */
const INTERVAL = 1
/** Milliseconds between two polls after IDLE_LOOKS polls without an event. */
const IDLE_INTERVAL = 10
const IDLE_LOOKS = 100

interface Waiter {
  readonly fd: number
  readonly events: number
  readonly resolve: () => void
}

/**
 * Waits for descriptors on the event loop, which Node itself cannot do. While a descriptor is
 * awaited, one `poll` checks all of them every millisecond, or every ten when idle. For 256
 * descriptors, polling takes 5 % of a core, or 1 % when idle. A separate thread that sleeps in
 * `poll` is no alternative, because it could not be ended with its rank. After a wait, callers must
 * check the descriptor again, because it may have been closed.
 */
class Readiness {
  readonly #waiters = new Set<Waiter>()
  #timer: NodeJS.Timeout | undefined
  #idle = 0
  #pollfds = new Int32Array(0)

  /** Resolves when the descriptor has one of these events, or when `forget` is called for it. */
  async wait(fd: number, events: number): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#waiters.add({ fd, events, resolve })
      this.#timer ??= this.#lookLater()
    })
  }

  /** Ends all waits on a descriptor. The owner must call it before it closes the descriptor. */
  forget(fd: number): void {
    for (const waiter of this.#waiters) if (waiter.fd === fd) this.#wake(waiter)
  }

  #lookLater(): NodeJS.Timeout {
    const interval = this.#idle < IDLE_LOOKS ? INTERVAL : IDLE_INTERVAL
    return setTimeout(() => {
      this.#timer = undefined
      this.#idle++
      this.#look()
      if (this.#waiters.size > 0) this.#timer ??= this.#lookLater()
    }, interval)
  }

  #look(): void {
    const waiters = [...this.#waiters]
    const words = POLLFD_BYTES / 4
    if (this.#pollfds.length < words * waiters.length) {
      this.#pollfds = new Int32Array(2 * words * waiters.length)
    }
    const pollfds = this.#pollfds
    for (const [i, { fd, events }] of waiters.entries()) pollfds.set([fd, events], words * i)
    if (waiters.length === 0 || pollFds(addressOf(pollfds), waiters.length, 0) === 0) return
    for (const [i, waiter] of waiters.entries()) {
      if (pollfds[words * i + 1]! >>> 16 !== 0) this.#wake(waiter)
    }
  }

  #wake(waiter: Waiter): void {
    this.#waiters.delete(waiter)
    this.#idle = 0
    waiter.resolve()
    if (this.#waiters.size > 0) return
    clearTimeout(this.#timer)
    this.#timer = undefined
  }
}

/** The waits on all descriptors of this thread. */
export const readiness = new Readiness()
