import { addressOf, pollFds, POLLFD_BYTES } from '@tsrun/native'

/** Milliseconds between two looks. */
const INTERVAL = 1

interface Waiter {
  readonly fd: number
  readonly events: number
  readonly resolve: () => void
}

/**
 * Waits on descriptors on the event loop, which Node cannot do itself: one `poll` for all of them looks
 * every millisecond while anybody waits. Callers look again themselves, as a descriptor may be closed or
 * taken from them.
 */
class Readiness {
  readonly #waiters = new Set<Waiter>()
  #timer: NodeJS.Timeout | undefined
  #pollfds = new Int32Array(0)

  /** Resolves when one of these events has come to a descriptor, or when it is forgotten. */
  async wait(fd: number, events: number): Promise<void> {
    await new Promise<void>((resolve) => {
      this.#waiters.add({ fd, events, resolve })
      this.#timer ??= setInterval(() => {
        this.#look()
      }, INTERVAL)
    })
  }

  /** Ends the waits on a descriptor, before it is closed. */
  forget(fd: number): void {
    for (const waiter of this.#waiters) if (waiter.fd === fd) this.#wake(waiter)
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
    waiter.resolve()
    if (this.#waiters.size > 0) return
    clearInterval(this.#timer)
    this.#timer = undefined
  }
}

/** Of all descriptors of this thread. */
export const readiness = new Readiness()
