import { constants } from 'node:os'
import { isAvailable, leadProcessGroup, setParentDeathSignal, stayOnCores } from '@tsrun/native'
import { acceptFaults } from './faults.ts'
import { openControlPipe } from './control-pipe.ts'
import { reportToLauncher } from './reporter.ts'
import { startThread } from './start-thread.ts'

const { env } = process

/** Connects this process to its launcher: it reports errors and usage, and ends with the launcher. */
export function prepareRank(): void {
  const place = takePlace()
  bindToCores()
  reportToLauncher(place.control)
  writeSynchronously(process.stdout)
  writeSynchronously(process.stderr)
  exitAtStop()
  keepOwnArguments()
  acceptFaults()
  // Ignore SIGUSR1. By default, it opens Node's debugger to every user of this machine.
  process.on('SIGUSR1', () => undefined)
  dieWithLauncher(place, true)
}

/**
 * Takes over the control pipe, and makes a process group.
 *
 * @returns the control pipe and the launcher's process ID
 */
export function takePlace() {
  const place = {
    control: openControlPipe(Number(env['TSRUN_CONTROL_FD'])),
    launcherPid: Number(env['TSRUN_LAUNCHER_PID']),
  }
  delete env['TSRUN_CONTROL_FD']
  delete env['TSRUN_LAUNCHER_PID']
  // Without koffi, the launcher has already started this process in a new session.
  if (isAvailable().available) leadProcessGroup()
  return place
}

export function bindToCores(): void {
  const { TSRUN_CORES: cores } = env
  delete env['TSRUN_CORES']
  if (cores === undefined) return
  if (isAvailable().available && stayOnCores(cores.split(',').map(Number))) return
  delete env['TSRUN_CORE_RANKS']
  console.error(`tsrun: cannot bind this process to the cores ${cores}`)
}

/** Makes a pipe synchronous, because process.exit() would lose unwritten data of an asynchronous pipe. */
function writeSynchronously(stream: NodeJS.WriteStream): void {
  const { _handle: handle } = stream as { _handle?: { setBlocking?: (on: boolean) => void } }
  handle?.setBlocking?.(true)
}

/**
 * Ensures that the end of the launcher, for any reason, kills this process and its group, even in
 * blocking native code. Uses the kernel's parent-death signal or, if unavailable, a thread that watches
 * the control pipe.
 *
 * @param answers - whether to start the thread in any case, to answer requests for stacks and faults
 */
export function dieWithLauncher(
  { launcherPid, control }: ReturnType<typeof takePlace>,
  answers = false,
): void {
  const dies = !askKernel()
  if (dies || answers) startThread('watch', { fd: control.fd, dies })
  // The launcher may have ended before this process watched it.
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

/** Node options that the launcher sets for each rank, with the port and the folder of the rank. */
const OWN = /^--(inspect(-brk)?|(cpu|heap)-prof(-dir)?)(=|$)/
const PROFILE = /^--(cpu|heap)-prof$/

/** Prevents forked children from listening at the rank's port. */
function keepOwnArguments(): void {
  const { execArgv } = process
  execArgv.splice(0, Infinity, ...execArgv.filter((argument) => !OWN.test(argument)))
}

/**
 * Exits at SIGTERM if the rank writes a profile, because Node writes profiles only on process.exit(). A
 * script with a SIGTERM handler decides itself when to exit.
 */
function exitAtStop(): void {
  if (!process.execArgv.some((argument) => PROFILE.test(argument))) return
  process.on('SIGTERM', () => {
    if (process.listenerCount('SIGTERM') === 1) process.exit(128 + constants.signals.SIGTERM)
  })
}
