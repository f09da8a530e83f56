import { fstatSync, statSync, type BigIntStats } from 'node:fs'

/** The functions of node:fs in Deno take numbers that Deno gives, not those of the system. */
const hasOwnNumbers = process.versions['deno'] !== undefined

/**
 * Returns the status of an open descriptor that may be a pipe, with bigint fields. Without bigint,
 * fstatSync() leaves the pipe's status in a buffer that Node's realpathSync() reads for the next path.
 * Later imports would then not resolve symbolic links, and would load a module again under each name.
 *
 * @throws EBADF if it is closed
 */
export function statusOf(descriptor: number): BigIntStats {
  if (hasOwnNumbers) return statSync(`/proc/self/fd/${descriptor}`, { bigint: true })
  return fstatSync(descriptor, { bigint: true })
}
