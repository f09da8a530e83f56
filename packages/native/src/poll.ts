import { addressOf, bindFunctions, check, EINTR, lastErrno, lazy, systemCallError } from './libc.ts'

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
  eventfd: 'int eventfd(uint, int)',
  read: 'int64_t read(int, size_t, size_t)',
  write: 'int64_t write(int, size_t, size_t)',
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

const EFD_NONBLOCK_CLOEXEC = 0o4000 | 0o2000000

const one = BigUint64Array.of(1n)
const sink = new BigUint64Array(1)
const addresses = lazy(() => ({ one: addressOf(one), sink: addressOf(sink) }))

/** Opens an eventfd, through which another thread can interrupt a `poll`. */
export function openEventfd(): number {
  return check('eventfd', calls().eventfd(0, EFD_NONBLOCK_CLOEXEC))
}

/** Makes the eventfd readable until `drainEventfd`. Callable from any thread. */
export function signalEventfd(fd: number): void {
  calls().write(fd, addresses().one, 8)
}

/** Resets the eventfd, so that it is no longer readable. */
export function drainEventfd(fd: number): void {
  calls().read(fd, addresses().sink, 8)
}
