import { bindFunction, lazy, systemCallError } from './libc.ts'

const PROT_READ_WRITE = 3
const MAP_SHARED = 0x01
const MAP_SHARED_FIXED = 0x11
const MAP_PRIVATE_ANONYMOUS_FIXED = 0x32

const calls = lazy(() => ({
  mmap: bindFunction<[number, number, number, number, number, number], number>(
    'intptr_t mmap(size_t, size_t, int, int, int, int64_t)',
  ),
  munmap: bindFunction<[number, number], number>('int munmap(size_t, size_t)'),
  memmove: bindFunction<[number, number, number], number>(
    'intptr_t memmove(size_t, size_t, size_t)',
  ),
}))

/**
 * Maps `length` bytes of the open file `fd` over the pages at `address` (both page-aligned),
 * shared with every process that maps it. The memory below must not be freed or grown while it is.
 */
export function mapFileOver(fd: number, address: number, length: number, fileOffset = 0): void {
  const at = calls().mmap(address, length, PROT_READ_WRITE, MAP_SHARED_FIXED, fd, fileOffset)
  if (at !== address) throw systemCallError('mmap')
}

/** Puts fresh private zero pages back over `address`; ends a `mapFileOver`. */
export function mapPrivateOver(address: number, length: number): void {
  const at = calls().mmap(address, length, PROT_READ_WRITE, MAP_PRIVATE_ANONYMOUS_FIXED, -1, 0)
  if (at !== address) throw systemCallError('mmap')
}

/** Maps the first `length` bytes of the open file `fd` wherever there is room; returns where. */
export function mapFile(fd: number, length: number): number {
  const at = calls().mmap(0, length, PROT_READ_WRITE, MAP_SHARED, fd, 0)
  if (at === -1) throw systemCallError('mmap')
  return at
}

/** Ends a `mapFile`. */
export function unmapFile(address: number, length: number): void {
  if (calls().munmap(address, length) !== 0) throw systemCallError('munmap')
}

/** Copies between addresses of this process, of whatever mapping; the ranges may overlap. */
export function copyMemory(to: number, from: number, bytes: number): void {
  calls().memmove(to, from, bytes)
}
