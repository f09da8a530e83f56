import { addressOf, bindFunction, lazy, systemCallError } from './libc.ts'

const RLIMIT_FSIZE = 1
const RLIMIT_NOFILE = 7
const RLIMIT_AS = 9

const calls = lazy(() => ({
  getrlimit: bindFunction<[number, number], number>('int getrlimit(int, size_t)'),
  setrlimit: bindFunction<[number, number], number>('int setrlimit(int, size_t)'),
}))

/**
 * Bounds how far this process can write into any file. What goes beyond fails with EFBIG, after the signal
 * SIGXFSZ, which ends a process that does not handle it.
 *
 * @throws ERR_TSR_SYSTEM_CALL
 */
export function limitFileSize(bytes: number): void {
  limit(RLIMIT_FSIZE, bytes)
}

/**
 * Bounds the descriptors that this process can open: opening fails with EMFILE where the new one would not be
 * below the bound. Open ones stay open.
 *
 * @throws ERR_TSR_SYSTEM_CALL
 */
export function limitOpenFiles(count: number): void {
  limit(RLIMIT_NOFILE, count)
}

/**
 * Bounds the memory that this process can map: mapping more fails with ENOMEM. What is mapped stays.
 *
 * @throws ERR_TSR_SYSTEM_CALL
 */
export function limitAddressSpace(bytes: number): void {
  limit(RLIMIT_AS, bytes)
}

/** Sets the soft limit. */
function limit(resource: number, value: number): void {
  /** struct rlimit: the soft limit, then the hard one. */
  const limits = new BigUint64Array(2)
  const at = addressOf(limits)
  if (calls().getrlimit(resource, at) !== 0) throw systemCallError('getrlimit')
  limits[0] = BigInt(value)
  if (calls().setrlimit(resource, at) !== 0) throw systemCallError('setrlimit')
}
