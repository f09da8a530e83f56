import { bindFunction, lazy, systemCallError } from './libc.ts'

const PR_SET_PDEATHSIG = 1

const calls = lazy(() => ({
  prctl: bindFunction<[number, number, number, number, number], number>(
    'int prctl(int, ulong, ulong, ulong, ulong)',
  ),
  setpgid: bindFunction<[number, number], number>('int setpgid(int, int)'),
}))

/**
 * Has the kernel send `signal` (a number) to this process when its parent ends, however it ends.
 * A parent that is already gone sends nothing: compare `process.ppid` afterwards.
 */
export function setParentDeathSignal(signal: number): void {
  if (calls().prctl(PR_SET_PDEATHSIG, signal, 0, 0, 0) !== 0) throw systemCallError('prctl')
}

/**
 * Makes this process the leader of a process group of its own, in the same session. Where sessions
 * are what the scheduler shares the cores among (autogroups), giving the core away with `yieldCore`
 * reaches only processes of one's own session.
 */
export function leadProcessGroup(): void {
  if (calls().setpgid(0, 0) !== 0) throw systemCallError('setpgid')
}
