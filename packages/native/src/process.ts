import { bindFunction, lazy, systemCallError } from './libc.ts'

const PR_SET_PDEATHSIG = 1
const SIGPIPE = 13
const SIG_DFL = 0
const F_SETFD = 2
const F_DUPFD_CLOEXEC = 1030

const calls = lazy(() => ({
  prctl: bindFunction<[number, number, number, number, number], number>(
    'int prctl(int, ulong, ulong, ulong, ulong)',
  ),
  setpgid: bindFunction<[number, number], number>('int setpgid(int, int)'),
}))

/**
 * Makes the kernel send `signal` (a number) to this process when its parent ends for any reason. A
 * parent that has ended before has no effect, so compare `process.ppid` afterwards.
 */
export function setParentDeathSignal(signal: number): void {
  if (calls().prctl(PR_SET_PDEATHSIG, signal, 0, 0, 0) !== 0) throw systemCallError('prctl')
}

/**
 * Makes this process the leader of a process group of its own, in the same session. The session stays
 * because of `yieldCore`: where the scheduler shares the cores among sessions (autogroups), it gives
 * the core only to processes of the same session.
 */
export function leadProcessGroup(): void {
  if (calls().setpgid(0, 0) !== 0) throw systemCallError('setpgid')
}

/**
 * Duplicates a descriptor to a free number of at least `lowest`. Programs that this process starts do not
 * inherit it. Undefined if this process may not have such a number.
 */
export function duplicateAbove(fd: number, lowest: number): number | undefined {
  const copy = programCalls().fcntl(fd, F_DUPFD_CLOEXEC, lowest)
  return copy < 0 ? undefined : copy
}

const programCalls = lazy(() => ({
  signal: bindFunction<[number, number], number>('size_t signal(int, size_t)'),
  fcntl: bindFunction<[number, number, number], number>('int fcntl(int, int, int)'),
  execv: bindFunction<[string, (string | null)[]], number>('int execv(str, str *)'),
}))

/**
 * Becomes another program, with the environment, the process id and the open files of this process.
 *
 * @param path - of the file
 * @param args - all that the program gets, its own name first
 * @throws ERR_TSR_SYSTEM_CALL when it cannot be started; otherwise it does not return
 */
export function becomeProgram(path: string, args: readonly string[]): never {
  // Node ignores it, and a program inherits that.
  const { signal, fcntl, execv } = programCalls()
  signal(SIGPIPE, SIG_DFL)
  // Node closes its standard streams in programs that it has not started itself.
  for (const fd of [0, 1, 2]) fcntl(fd, F_SETFD, 0)
  execv(path, [...args, null])
  throw systemCallError('execv')
}
