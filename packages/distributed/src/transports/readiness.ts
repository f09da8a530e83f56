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
function watchDescriptors() {
  const waiters = new Set<Waiter>()
  let timer: NodeJS.Timeout | undefined
  let idle = 0
  let pollfds = new Int32Array(0)

  const lookLater = (): NodeJS.Timeout => {
    const interval = idle < IDLE_LOOKS ? INTERVAL : IDLE_INTERVAL
    return setTimeout(() => {
      timer = undefined
      idle++
      look()
      if (waiters.size > 0) timer = lookLater()
    }, interval)
  }

  const look = (): void => {
    const all = [...waiters]
    const words = POLLFD_BYTES / 4
    if (pollfds.length < words * all.length) {
      pollfds = new Int32Array(2 * words * all.length)
    }
    for (const [i, { fd, events }] of all.entries()) pollfds.set([fd, events], words * i)
    if (all.length === 0 || pollFds(addressOf(pollfds), all.length, 0) === 0) return
    for (const [i, waiter] of all.entries()) {
      if (pollfds[words * i + 1]! >>> 16 !== 0) wake(waiter)
    }
  }

  const wake = (waiter: Waiter): void => {
    waiters.delete(waiter)
    idle = 0
    waiter.resolve()
    if (waiters.size > 0) return
    clearTimeout(timer)
    timer = undefined
  }

  return {
    /** Resolves when the descriptor has one of these events, or when `forget` is called for it. */
    async wait(fd: number, events: number): Promise<void> {
      await new Promise<void>((resolve) => {
        waiters.add({ fd, events, resolve })
        timer ??= lookLater()
      })
    },
    /** Ends all waits on a descriptor. The owner must call it before it closes the descriptor. */
    forget(fd: number): void {
      for (const waiter of waiters) if (waiter.fd === fd) wake(waiter)
    },
  }
}

/** The waits on all descriptors of this thread. */
export const readiness = watchDescriptors()
