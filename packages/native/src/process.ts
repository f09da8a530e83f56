import { bindFunction, lazy, systemCallError } from './libc.ts'

const PR_SET_PDEATHSIG = 1

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
