import { bindFunctions, check, systemCallError } from './libc.ts'

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
 * Makes this process the leader of a new process group in the same session. The session must stay the
 * same for `yieldCore`: with scheduler autogroups, it yields only to processes of the same session.
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
 * @param path - of the executable file
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
