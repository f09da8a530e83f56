import { EINTR } from './errno.ts'
import { bindFunction, lastErrno, lazy, systemCallError } from './libc.ts'

export const POLLIN = 1
export const POLLOUT = 4
/** Bytes of one `struct pollfd`: int fd, short events, short revents. */
export const POLLFD_BYTES = 8

const calls = lazy(() => ({
  poll: bindFunction<[number, number, number], number>('int poll(size_t, size_t, int)'),
  schedYield: bindFunction<[], number>('int sched_yield()'),
}))

/** Waits on `count` pollfds at `address`; returns how many are ready, 0 at the time-out or a signal. */
export function pollFds(address: number, count: number, timeoutMilliseconds: number): number {
  const ready = calls().poll(address, count, timeoutMilliseconds)
  if (ready >= 0) return ready
  const errno = lastErrno()
  if (errno === EINTR) return 0
  throw systemCallError('poll', errno)
}

/** Lets another runnable thread of this core run first. */
export function yieldCore(): void {
  calls().schedYield()
}
