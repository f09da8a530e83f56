import { closeSync, ftruncateSync, openSync } from 'node:fs'
import { bindFunction, lazy, systemCallError } from './libc.ts'

const CLOSE_ON_EXEC = 1

const calls = lazy(() => ({
  create: bindFunction<[string, number], number>('int memfd_create(const char *, unsigned int)'),
}))

/**
 * A file of `bytes` bytes that exists in memory only (memfd_create(2)): it has no name anywhere and
 * is gone with the last descriptor and mapping of it, whatever ends the processes.
 */
export function createSharedFile(name: string, bytes: number): number {
  const fd = calls().create(name, CLOSE_ON_EXEC)
  if (fd < 0) throw systemCallError('memfd_create')
  try {
    ftruncateSync(fd, bytes)
  } catch (error) {
    closeSync(fd)
    throw error
  }
  return fd
}

/**
 * Opens a shared file that process `pid` has open as `fd`. Both must see the same /proc and belong
 * to the same user.
 */
export function openSharedFile(pid: number, fd: number): number {
  return openSync(`/proc/${pid}/fd/${fd}`, 'r+')
}
