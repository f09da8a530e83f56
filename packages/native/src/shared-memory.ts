import { constants } from 'node:fs'
import { addressOf, bindFunctions, check, closeNative, lazy, openNative } from './libc.ts'

const CLOSE_ON_EXEC = 1

const fileCalls = bindFunctions({
  create: 'int memfd_create(str, uint)',
  truncate: 'int ftruncate(int, int64_t)',
})

/**
 * Creates a file of `bytes` bytes in memory (memfd_create(2)). It has no name. The kernel frees it with
 * its last descriptor and mapping, even if processes crash.
 */
export function createSharedFile(name: string, bytes: number): number {
  const fd = check('memfd_create', fileCalls().create(name, CLOSE_ON_EXEC))
  try {
    check('ftruncate', fileCalls().truncate(fd, bytes))
  } catch (error) {
    closeNative(fd)
    throw error
  }
  return fd
}

/**
 * Opens the shared file that process `pid` has open as `fd`. Both processes must share /proc and belong
 * to the same user.
 */
export function openSharedFile(pid: number, fd: number): number {
  return openNative(`/proc/${pid}/fd/${fd}`, constants.O_RDWR)
}

const PROT_READ_WRITE = 3
const MAP_SHARED = 0x01
const MAP_SHARED_FIXED = 0x11
const MAP_PRIVATE_ANONYMOUS_FIXED = 0x32

const calls = bindFunctions({
  mmap: 'intptr_t mmap(size_t, size_t, int, int, int, int64_t)',
  munmap: 'int munmap(size_t, size_t)',
  memmove: 'intptr_t memmove(size_t, size_t, size_t)',
})

/**
 * Maps `length` bytes of the open file `fd` over the pages at `address`. Both must be page-aligned.
 * The mapping is shared with other processes. Do not free or grow the memory while it is mapped.
 */
export function mapFileOver(fd: number, address: number, length: number, fileOffset = 0): void {
  map(address, length, MAP_SHARED_FIXED, fd, fileOffset)
}

/** Undoes `mapFileOver`: maps private, zeroed pages at `address`. */
export function mapPrivateOver(address: number, length: number): void {
  map(address, length, MAP_PRIVATE_ANONYMOUS_FIXED, -1)
}

/** Maps the first `length` bytes of the open file `fd`. Returns the address. */
export function mapFile(fd: number, length: number): number {
  return map(0, length, MAP_SHARED, fd)
}

function map(address: number, length: number, flags: number, fd: number, fileOffset = 0): number {
  return check('mmap', calls().mmap(address, length, PROT_READ_WRITE, flags, fd, fileOffset))
}

/** Unmaps memory that `mapFile` has mapped. */
export function unmapFile(address: number, length: number): void {
  check('munmap', calls().munmap(address, length))
}

/** Copies memory within this process. The ranges may overlap. */
export function copyMemory(to: number, from: number, bytes: number): void {
  calls().memmove(to, from, bytes)
}

const SYS_FUTEX = process.arch === 'arm64' ? 98 : 202
const FUTEX_WAIT = 0
const FUTEX_WAKE = 1

const futexCalls = bindFunctions({
  futex: 'long syscall(long, size_t, int, int, size_t, size_t, int)',
})

const timespec = new BigInt64Array(2)
const timespecAddress = lazy(() => addressOf(timespec))

/**
 * Sleeps while the 32-bit word at `address` equals `value`, for at most `milliseconds`. Unlike
 * `Atomics.wait`, it works between processes on shared pages. It may return early, so test the word
 * again.
 *
 * @param milliseconds - Infinity for no limit
 */
export function futexWait(address: number, value: number, milliseconds: number): void {
  futexCalls().futex(SYS_FUTEX, address, FUTEX_WAIT, value | 0, timeoutAddress(milliseconds), 0, 0)
}

/** Wakes all threads that sleep on the word at `address`. */
export function futexWake(address: number): void {
  futexCalls().futex(SYS_FUTEX, address, FUTEX_WAKE, 0x7fffffff, 0, 0, 0)
}

function timeoutAddress(milliseconds: number): number {
  if (milliseconds === Infinity) return 0
  timespec[0] = BigInt(Math.floor(milliseconds / 1000))
  timespec[1] = BigInt(Math.floor((milliseconds % 1000) * 1e6))
  return timespecAddress()
}
