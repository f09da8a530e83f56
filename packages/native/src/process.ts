import { readdirSync } from 'node:fs'
import { cpus } from 'node:os'
import { addressOf, bindFunctions, check, systemCallError } from './libc.ts'

const PR_SET_PDEATHSIG = 1
const SIGPIPE = 13
const SIG_DFL = 0
const F_SETFD = 2
const F_DUPFD_CLOEXEC = 1030

const calls = bindFunctions({
  prctl: 'int prctl(int, ulong, ulong, ulong, ulong)',
  setpgid: 'int setpgid(int, int)',
})

/**
 * Makes the kernel send `signal` (a number) to this process when its parent ends for any reason. It has
 * no effect if the parent has already ended, so compare `process.ppid` afterwards.
 */
export function setParentDeathSignal(signal: number): void {
  check('prctl', calls().prctl(PR_SET_PDEATHSIG, signal, 0, 0, 0))
}

/**
 * Makes this process the leader of a new process group in the same session. The session must stay the same:
 * with scheduler autogroups, `yieldCore` yields only to processes of the same session.
 */
export function leadProcessGroup(): void {
  check('setpgid', calls().setpgid(0, 0))
}

/**
 * Duplicates a descriptor to a free number of at least `lowest`, with close-on-exec. Undefined if the
 * limits of this process do not allow such a number.
 */
export function duplicateAbove(fd: number, lowest: number): number | undefined {
  const copy = programCalls().fcntl(fd, F_DUPFD_CLOEXEC, lowest)
  return copy < 0 ? undefined : copy
}

const programCalls = bindFunctions({
  signal: 'size_t signal(int, size_t)',
  fcntl: 'int fcntl(int, int, int)',
  execv: 'int execv(str, str *)',
})

/**
 * Replaces this process by another program (execv), with the same environment, process ID and open
 * files.
 *
 * @param path - the path of the executable file
 * @param args - all arguments, including the program name as the first
 * @throws ERR_TSR_SYSTEM_CALL if it cannot be started; otherwise it does not return
 */
export function becomeProgram(path: string, args: readonly string[]): never {
  // Node ignores SIGPIPE, and the new program would inherit that.
  const { signal, fcntl, execv } = programCalls()
  signal(SIGPIPE, SIG_DFL)
  // Node sets close-on-exec on its standard streams.
  for (const fd of [0, 1, 2]) fcntl(fd, F_SETFD, 0)
  execv(path, [...args, null])
  throw systemCallError('execv')
}

/** The numbers of RLIMIT_FSIZE, RLIMIT_NOFILE and RLIMIT_AS. */
const resources = { fileSize: 1, openFiles: 7, addressSpace: 9 } as const

const limitCalls = bindFunctions({
  getrlimit: 'int getrlimit(int, size_t)',
  setrlimit: 'int setrlimit(int, size_t)',
})

/** The bytes of address space that this process may use; a huge number if there is no limit. */
export function addressSpaceLimit(): number {
  return Number(limitsOf('addressSpace')[0])
}

/**
 * Limits a resource of this process. Open descriptors and mapped memory beyond the limit stay.
 *
 * - `fileSize`: bytes of a file. A longer write raises SIGXFSZ, which ends a process that does not handle
 *   it; otherwise the write fails with EFBIG
 * - `openFiles`: descriptors. Opening fails with EMFILE if the new descriptor would reach the limit
 * - `addressSpace`: bytes. Mapping more fails with ENOMEM
 *
 * @throws ERR_TSR_SYSTEM_CALL
 */
export function limitResource(resource: keyof typeof resources, value: number): void {
  const limits = limitsOf(resource)
  limits[0] = BigInt(value)
  check('setrlimit', limitCalls().setrlimit(resources[resource], addressOf(limits)))
}

/** Returns the struct rlimit: the soft limit, then the hard limit. */
function limitsOf(resource: keyof typeof resources): BigUint64Array {
  const limits = new BigUint64Array(2)
  check('getrlimit', limitCalls().getrlimit(resources[resource], addressOf(limits)))
  return limits
}

/** Bytes of a mask of 8192 cores, the Linux maximum. The cpu_set_t of libc holds only 1024. */
const SET_BYTES = 1024
const BITS = [0, 1, 2, 3, 4, 5, 6, 7]
const THIS_THREAD = 0

const coreCalls = bindFunctions({
  get: 'int sched_getaffinity(int, size_t, size_t)',
  set: 'int sched_setaffinity(int, size_t, size_t)',
  current: 'int sched_getcpu()',
})

/** The cores that this thread may run on, in ascending order. */
export function allowedCores(): number[] {
  return [...readSet().entries()].flatMap(([at, byte]) =>
    byte === 0 ? [] : BITS.filter((bit) => (byte & (1 << bit)) !== 0).map((bit) => 8 * at + bit),
  )
}

/** Whether this process may use all cores of its host. */
export function hasAllCores(): boolean {
  return allowedCores().length === cpus().length
}

/** The number of the core on which this thread runs at the moment. */
export function currentCore(): number {
  return coreCalls().current()
}

/**
 * Moves this thread to a core once. The kernel may move it again later.
 *
 * @returns false if the thread may not run there, for example because the cores of its container
 *   changed
 */
export function moveToCore(core: number): boolean {
  const before = readSet()
  const only = new Uint8Array(SET_BYTES)
  only[core >> 3] = 1 << (core & 7)
  if (!writeSet(only)) return false
  return writeSet(before)
}

/**
 * Restricts this process to some cores: its existing threads, and all threads that they start
 * later.
 *
 * @returns false if the process may run on none of the cores, or if a number identifies no core
 */
export function stayOnCores(cores: readonly number[]): boolean {
  if (!cores.every((core) => Number.isInteger(core) && core >= 0 && core < 8 * SET_BYTES))
    return false
  const set = new Uint8Array(SET_BYTES)
  for (const core of cores) set[core >> 3]! |= 1 << (core & 7)
  const threads = readdirSync('/proc/self/task').map(Number)
  return threads.every((thread) => writeSet(set, thread))
}

function readSet(): Uint8Array {
  const set = new Uint8Array(SET_BYTES)
  check('sched_getaffinity', coreCalls().get(THIS_THREAD, SET_BYTES, addressOf(set)))
  return set
}

function writeSet(set: Uint8Array, thread = THIS_THREAD): boolean {
  return coreCalls().set(thread, SET_BYTES, addressOf(set)) === 0
}
