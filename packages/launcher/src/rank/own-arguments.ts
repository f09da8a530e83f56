import { constants } from 'node:os'

/**
 * Options such as `--inspect` and `--cpu-prof`, which the launcher sets for each rank with its port and
 * folder.
 */
const OWN = /^--(inspect(-brk|-publish-uid)?|(cpu|heap)-prof(-dir)?)(=|$)/
const PROFILE = /^--(cpu|heap)-prof$/

/** Prevents forked children from listening at the rank's port. */
export function keepOwnArguments(): void {
  const { execArgv } = process
  execArgv.splice(0, Infinity, ...execArgv.filter((argument) => !OWN.test(argument)))
}

/**
 * Exits at SIGTERM if the rank writes a profile, because Node writes profiles only on process.exit(). A
 * script with a SIGTERM handler decides itself when to exit.
 */
export function exitAtStop(): void {
  if (!process.execArgv.some((argument) => PROFILE.test(argument))) return
  process.on('SIGTERM', () => {
    if (process.listenerCount('SIGTERM') === 1) process.exit(128 + constants.signals.SIGTERM)
  })
}
