import { bindFunctions, EINTR, lastErrno, systemCallError } from './libc.ts'

/** Event of `pollFds`: the descriptor is readable. */
export const POLLIN = 1
/** Event of `pollFds`: the descriptor is writable. */
export const POLLOUT = 4
/** Event of `pollFds`: the descriptor has an error, or its other end is closed. */
export const POLLERR = 8
/** Bytes of a `struct pollfd`: int fd, short events, short revents. */
export const POLLFD_BYTES = 8

const calls = bindFunctions({
  poll: 'int poll(size_t, size_t, int)',
  schedYield: 'int sched_yield()',
})

/**
 * Waits for `count` pollfds at `address`. Returns the number of ready ones, or 0 after a time-out or a
 * signal.
 */
export function pollFds(address: number, count: number, timeoutMilliseconds: number): number {
  const ready = calls().poll(address, count, timeoutMilliseconds)
  if (ready >= 0) return ready
  const errno = lastErrno()
  if (errno === EINTR) return 0
  throw systemCallError('poll', errno)
}

/** Yields the core to another thread that is ready to run on it. */
export function yieldCore(): void {
  calls().schedYield()
}
