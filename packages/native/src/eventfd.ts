import { addressOf, bindFunction, lazy, systemCallError } from './libc.ts'

const EFD_NONBLOCK_CLOEXEC = 0o4000 | 0o2000000

const calls = lazy(() => ({
  eventfd: bindFunction<[number, number], number>('int eventfd(uint, int)'),
  read: bindFunction<[number, number, number], number>('int64_t read(int, size_t, size_t)'),
  write: bindFunction<[number, number, number], number>('int64_t write(int, size_t, size_t)'),
}))

const one = BigUint64Array.of(1n)
const sink = new BigUint64Array(1)
const addresses = lazy(() => ({ one: addressOf(one), sink: addressOf(sink) }))

/** Opens an eventfd: a doorbell that `poll` hears. */
export function openEventfd(): number {
  const fd = calls().eventfd(0, EFD_NONBLOCK_CLOEXEC)
  if (fd < 0) throw systemCallError('eventfd')
  return fd
}

/** Rings: readable until `drainEventfd`. Works from any thread. */
export function signalEventfd(fd: number): void {
  calls().write(fd, addresses().one, 8)
}

export function drainEventfd(fd: number): void {
  calls().read(fd, addresses().sink, 8)
}
