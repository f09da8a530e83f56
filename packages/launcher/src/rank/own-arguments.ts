import { constants } from 'node:os'

/** `--inspect`, `--cpu-prof` and the like, which the launcher gives each rank with its own port and folder. */
const OWN = /^--(inspect(-brk|-publish-uid)?|(cpu|heap)-prof(-dir)?)(=|$)/
const PROFILE = /^--(cpu|heap)-prof$/

/** Keeps children that the rank forks from listening at the port of the rank. */
export function keepOwnArguments(execArgv: string[]): void {
  const others = execArgv.filter((argument) => !OWN.test(argument))
  execArgv.splice(0, execArgv.length, ...others)
}

/**
 * Ends a rank that writes a profile at SIGTERM as process.exit() does, because Node writes profiles only
 * then. A script that handles the signal itself decides when it ends.
 */
export function exitAtStop(execArgv: readonly string[]): void {
  if (!execArgv.some((argument) => PROFILE.test(argument))) return
  process.on('SIGTERM', () => {
    if (process.listenerCount('SIGTERM') === 1) process.exit(128 + constants.signals.SIGTERM)
  })
}
