import { constants } from 'node:os'
import { Worker } from 'node:worker_threads'
import { isAvailable, leadProcessGroup, setParentDeathSignal } from '@tsrun/native'
import { reportToLauncher } from './reporter.ts'

/** Ties this process to its launcher: it reports errors and usage, and dies with the launcher. */
export function prepareRank(env: NodeJS.ProcessEnv): void {
  const controlFd = Number(env['TSRUN_CONTROL_FD'])
  const launcherPid = Number(env['TSRUN_LAUNCHER_PID'])
  delete env['TSRUN_CONTROL_FD']
  delete env['TSRUN_LAUNCHER_PID']
  // else the launcher has made a session for it
  if (isAvailable().available) leadProcessGroup()
  reportToLauncher(controlFd)
  writeSynchronously(process.stdout)
  writeSynchronously(process.stderr)
  dieWithLauncher(launcherPid, controlFd)
}

/**
 * Pipes of Node are asynchronous: without this, what a rank prints just before process.exit() is
 * lost when the launcher is busy.
 */
function writeSynchronously(stream: NodeJS.WriteStream): void {
  const { _handle: handle } = stream as { _handle?: { setBlocking?: (on: boolean) => void } }
  handle?.setBlocking?.(true)
}

/**
 * Has this process killed when the launcher ends, however it ends, even while it is stuck in native
 * code: by the kernel's parent-death signal, or, where that is missing, by a thread that watches
 * the control pipe.
 */
function dieWithLauncher(launcherPid: number, controlFd: number): void {
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
