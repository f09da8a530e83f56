import { addressOf, bindFunction, lazy } from './libc.ts'

const SYS_FUTEX = process.arch === 'arm64' ? 98 : 202
const FUTEX_WAIT = 0
const FUTEX_WAKE = 1

const calls = lazy(() => ({
  futex: bindFunction<[number, number, number, number, number, number, number], number>(
    'long syscall(long, size_t, int, int, size_t, size_t, int)',
  ),
}))

const timespec = new BigInt64Array(2)
const timespecAddress = lazy(() => addressOf(timespec))

/**
 * Sleeps while the 32-bit word at `address` holds `value`, at most `milliseconds`. Works between
 * processes on shared pages, unlike `Atomics.wait`. May return early; test the word again.
 *
 * @param milliseconds - Infinity waits for as long as it takes
 */
export function futexWait(address: number, value: number, milliseconds: number): void {
  calls().futex(SYS_FUTEX, address, FUTEX_WAIT, value | 0, timeoutAddress(milliseconds), 0, 0)
}

/** Wakes everybody who sleeps on the word at `address`. */
export function futexWake(address: number): void {
  calls().futex(SYS_FUTEX, address, FUTEX_WAKE, 0x7fffffff, 0, 0, 0)
}

function timeoutAddress(milliseconds: number): number {
  if (milliseconds === Infinity) return 0
  timespec[0] = BigInt(Math.floor(milliseconds / 1000))
  timespec[1] = BigInt(Math.floor((milliseconds % 1000) * 1e6))
  return timespecAddress()
}
