import { constants } from 'node:os'
import { Worker } from 'node:worker_threads'
import { isAvailable, setParentDeathSignal } from '@tsrun/native'

/**
 * Has this process killed when the launcher ends, however it ends, even while it is stuck in native
 * code: by the kernel's parent-death signal, or, where that is missing, by a thread that watches
 * the control pipe.
 */
export function dieWithLauncher(launcherPid: number, controlFd: number): void {
  if (!askKernel()) watchPipe(controlFd)
  // The launcher may have died before the kernel was asked.
  if (process.ppid !== launcherPid) process.kill(process.pid, 'SIGKILL')
}

function askKernel(): boolean {
  if (!isAvailable().available) return false
  try {
    setParentDeathSignal(constants.signals.SIGKILL)
    return true
  } catch {
    return false
  }
}

const watcher = `
  const { Socket } = require('node:net')
  const { workerData } = require('node:worker_threads')
  const pipe = new Socket({ fd: workerData, readable: true, writable: false })
  const die = () => process.kill(process.pid, 'SIGKILL')
  pipe.on('error', die).on('end', die).resume()
`

/** In a thread of its own: the main thread may block for long. */
function watchPipe(controlFd: number): void {
  new Worker(watcher, { eval: true, workerData: controlFd, execArgv: [], env: {} }).unref()
}
