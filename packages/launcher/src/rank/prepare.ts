import { isAvailable, leadProcessGroup } from '@tsrun/native'
import { dieWithLauncher } from './parent-death.ts'
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
