import { setImmediate } from 'node:timers/promises'
import type { ProcessGroup } from '@tsrun/distributed'
import type { FitEnd } from './fit-options.ts'

/**
 * The signals that end training, and the exit code of each: 128 plus the number of the signal, as in
 * shells. Under `tsrun`, Ctrl-C reaches ranks as SIGTERM, otherwise as SIGINT.
 */
const EXIT_CODES = { SIGTERM: 143, SIGUSR1: 138, SIGINT: 130 } as const
type Signal = keyof typeof EXIT_CODES
const SIGNALS = Object.keys(EXIT_CODES) as Signal[]

/** The reasons to stop, in ascending priority. Undefined means no reason. */
const STOPS = [undefined, 'callback', ...SIGNALS] as const

/**
 * Handles signals that request to save and stop. Ranks may receive a signal at different steps, or not at
 * all, so they exchange their signals after each step.
 */
export function watchSignals() {
  let received: Signal | undefined
  const listener = (signal: Signal) => {
    received ??= signal
  }
  // Let a second Ctrl-C end the process at once.
  for (const signal of SIGNALS) process[signal === 'SIGINT' ? 'once' : 'on'](signal, listener)
  return {
    /**
     * Returns a signal that some rank received. If there is none, returns `callback` if a callback asked
     * to stop on some rank, otherwise undefined. All ranks must call this method after each step.
     */
    async agree(world: ProcessGroup, asked: boolean) {
      // Yield to the event loop, which runs signal handlers. Some steps never yield to it.
      await setImmediate()
      const own = received ?? (asked ? 'callback' : undefined)
      const last = Int32Array.of(STOPS.indexOf(own))
      if (world.size > 1) await world.allReduce(last, { op: 'max', label: 'whether to stop' })
      return STOPS[last[0]!]
    },

    /** After a signal, sets the exit code of the process to the code of the signal, unless one is set. */
    setExitCode(end: FitEnd) {
      if (end in EXIT_CODES) process.exitCode ??= EXIT_CODES[end as Signal]
    },

    dispose() {
      for (const signal of SIGNALS) process.off(signal, listener)
    },
  }
}
