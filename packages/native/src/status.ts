import { fstatSync, type BigIntStats } from 'node:fs'

/**
 * The status of an open descriptor that may be a pipe. With numbers, fstatSync() would leave the pipe's
 * status in the buffer from which Node's realpathSync() reads that of the next path: modules that are
 * imported after that would keep the names of their symbolic links, and be loaded again under each name.
 *
 * @throws EBADF if it is closed
 */
export function statusOf(descriptor: number): BigIntStats {
  return fstatSync(descriptor, { bigint: true })
}
