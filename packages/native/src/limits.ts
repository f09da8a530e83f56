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

/** The bytes of address space that this process may use. Without a limit, more than any machine has. */
export function addressSpaceLimit(): number {
  return Number(limitsOf(RLIMIT_AS)[0])
}

function limit(resource: number, value: number): void {
  const limits = limitsOf(resource)
  limits[0] = BigInt(value)
  check('setrlimit', calls().setrlimit(resource, addressOf(limits)))
}

/** Returns the struct rlimit: the soft limit, then the hard limit. */
function limitsOf(resource: number): BigUint64Array {
  const limits = new BigUint64Array(2)
  check('getrlimit', calls().getrlimit(resource, addressOf(limits)))
  return limits
}
