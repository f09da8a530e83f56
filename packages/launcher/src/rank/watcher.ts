import { startThread } from './start-thread.ts'

/**
 * Starts a thread that serves the launcher while the main thread is busy. It sends the stack of the
 * main thread on request and injects faults into it (`--chaos`). If `dies`, it kills this process and
 * its group when the launcher ends.
 */
export function watchLauncher(controlFd: number, dies: boolean): void {
  startThread('watch', { fd: controlFd, dies })
}
