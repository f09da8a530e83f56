import { constants } from 'node:fs'
import { bindFunctions, check, closeNative, openNative } from './libc.ts'

const CLOSE_ON_EXEC = 1

const calls = bindFunctions({
  create: 'int memfd_create(str, uint)',
  truncate: 'int ftruncate(int, int64_t)',
  mmap: 'intptr_t mmap(size_t, size_t, int, int, int, int64_t)',
  munmap: 'int munmap(size_t, size_t)',
  memmove: 'intptr_t memmove(size_t, size_t, size_t)',
})

/**
 * Creates a file of `bytes` bytes in memory (memfd_create(2)). It has no name. The kernel frees it with
 * its last descriptor and mapping, even if processes crash.
 */
export function createSharedFile(name: string, bytes: number): number {
  const fd = check('memfd_create', calls().create(name, CLOSE_ON_EXEC))
  try {
    check('ftruncate', calls().truncate(fd, bytes))
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
