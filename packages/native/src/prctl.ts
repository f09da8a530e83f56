import { bindFunction, lazy, systemCallError } from './libc.ts'

const PR_SET_PDEATHSIG = 1

const calls = lazy(() => ({
  prctl: bindFunction<[number, number, number, number, number], number>(
    'int prctl(int, ulong, ulong, ulong, ulong)',
  ),
}))

/**
 * Has the kernel send `signal` (a number) to this process when its parent ends, however it ends.
 * A parent that is already gone sends nothing: compare `process.ppid` afterwards.
 */
export function setParentDeathSignal(signal: number): void {
  if (calls().prctl(PR_SET_PDEATHSIG, signal, 0, 0, 0) !== 0) throw systemCallError('prctl')
}
