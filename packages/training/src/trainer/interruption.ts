import { setImmediate } from 'node:timers/promises'
import type { FitEnd } from './fit-options.ts'
import type { Trainer } from './trainer.ts'

/**
 * The signals that end training, and the exit code of each: 128 plus the number of the signal, as in
 * shells. Under `tsrun`, Ctrl-C reaches ranks as SIGTERM, otherwise as SIGINT.
 */
const EXIT_CODES = { SIGTERM: 143, SIGUSR1: 138, SIGINT: 130 } as const
type Signal = keyof typeof EXIT_CODES
const SIGNALS = Object.keys(EXIT_CODES) as Signal[]

/**
 * The reasons to stop, or undefined for none, in ascending priority: if ranks have different ones, the last
 * one wins.
 */
const STOPS = [undefined, 'callback', ...SIGNALS] as const

/**
 * Handles signals that request to save and stop. Ranks may receive a signal at different steps, or not at
 * all, so they exchange their signals after each step.
 */
export function watchSignals() {
  let received: Signal | undefined
  const listeners = SIGNALS.map((signal) => {
    const listener = () => {
      received ??= signal
    }
    // Let a second Ctrl-C end the process at once.
    if (signal === 'SIGINT') process.once(signal, listener)
    else process.on(signal, listener)
    return { signal, listener }
  })
  return {
    /**
     * Returns the signal that any rank received, or `callback` if a callback of any rank asks to stop; else
     * undefined. All ranks must call this method after each step.
     *
     * @param asked - whether a callback of this rank asks to stop
     */
    async agree(run: Trainer, asked: boolean) {
      // Yield to the event loop, in which signal handlers run. A step may never yield to it.
      await setImmediate()
      const own = received ?? (asked ? 'callback' : undefined)
      return STOPS[await run.largest(STOPS.indexOf(own))]
    },

    /**
     * After a signal, sets the exit code of the process to the code of the signal, unless one is already
     * set.
     */
    setExitCode(end: FitEnd) {
      if (end in EXIT_CODES) process.exitCode ??= EXIT_CODES[end as Signal]
    },

    dispose() {
      for (const { signal, listener } of listeners) process.off(signal, listener)
    },
  }
}
