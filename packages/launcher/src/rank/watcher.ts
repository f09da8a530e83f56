import { startThread } from './start-thread.ts'

/**
 * Starts a thread that listens to the launcher while the main thread is busy: it answers questions for
 * the stack of the main thread, injects faults into it (`--chaos`) and, if `dies`, kills this process with
 * its group when the launcher ends.
 */
export function watchLauncher(controlFd: number, dies: boolean): void {
  startThread('watch', { fd: controlFd, dies })
}
