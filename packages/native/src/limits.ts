import { addressOf, bindFunctions, check } from './libc.ts'

const RLIMIT_FSIZE = 1
const RLIMIT_NOFILE = 7
const RLIMIT_AS = 9

const calls = bindFunctions({
  getrlimit: 'int getrlimit(int, size_t)',
  setrlimit: 'int setrlimit(int, size_t)',
})

/**
 * Limits the size of the files that this process writes. A write beyond it raises SIGXFSZ, which ends a
 * process that does not handle it; otherwise the write fails with EFBIG.
 *
 * @throws ERR_TSR_SYSTEM_CALL
 */
export function limitFileSize(bytes: number): void {
  limit(RLIMIT_FSIZE, bytes)
}

/**
 * Limits the descriptors of this process. Opening fails with EMFILE if the new descriptor would
 * reach the limit. Open descriptors above the limit stay open.
 *
 * @throws ERR_TSR_SYSTEM_CALL
 */
export function limitOpenFiles(count: number): void {
  limit(RLIMIT_NOFILE, count)
}

/**
 * Limits the address space of this process. Mapping more fails with ENOMEM. Existing mappings stay.
 *
 * @throws ERR_TSR_SYSTEM_CALL
 */
export function limitAddressSpace(bytes: number): void {
  limit(RLIMIT_AS, bytes)
}

function limit(resource: number, value: number): void {
  /** struct rlimit: the soft limit, then the hard limit. */
  const limits = new BigUint64Array(2)
  const at = addressOf(limits)
  check('getrlimit', calls().getrlimit(resource, at))
  limits[0] = BigInt(value)
  check('setrlimit', calls().setrlimit(resource, at))
}
