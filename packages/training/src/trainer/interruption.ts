import { setImmediate } from 'node:timers/promises'
import type { FitEnd } from './fit-options.ts'
import type { Trainer } from './trainer.ts'

/** Ctrl-C reaches ranks as SIGTERM under `tsrun`, and as SIGINT without it. */
const SIGNALS = ['SIGTERM', 'SIGUSR1', 'SIGINT'] as const
/** 128 plus the number of the signal, as in shells. */
const EXIT_CODES = { SIGTERM: 143, SIGUSR1: 138, SIGINT: 130 } as const

type Stop = Exclude<FitEnd, 'complete'>

/** If ranks ask for different reasons, the latest in this list wins. */
const STOPS = ['callback', ...SIGNALS] as const satisfies readonly Stop[]

/**
 * Handles signals that ask to save and stop. Ranks may receive them at different steps, or not at all,
 * so they agree after each step.
 */
export class Interruption {
  #signal: (typeof SIGNALS)[number] | undefined
  readonly #listeners = SIGNALS.map((signal) => {
    const listener = (): void => {
      this.#signal ??= signal
    }
    // A second Ctrl-C ends the process at once.
    if (signal === 'SIGINT') process.once(signal, listener)
    else process.on(signal, listener)
    return { signal, listener }
  })

  /**
   * Returns the signal that any rank received, or `callback` if a callback asks to stop. All ranks call
   * it after each step.
   *
   * @param asked - whether a callback of this rank asks to stop
   */
  async agree(run: Trainer, asked: boolean): Promise<Stop | undefined> {
    // Let the event loop turn: a step may not, and signal handlers run only then.
    await setImmediate()
    const own = this.#signal ?? (asked ? 'callback' : undefined)
    const agreed = await run.largest(own === undefined ? 0 : STOPS.indexOf(own) + 1)
    return STOPS[agreed - 1]
  }

  /** After an interruption, the process exits with the signal's exit code, unless another one is set. */
  setExitCode(end: FitEnd): void {
    if (end in EXIT_CODES) process.exitCode ??= EXIT_CODES[end as keyof typeof EXIT_CODES]
  }

  dispose(): void {
    for (const { signal, listener } of this.#listeners) process.off(signal, listener)
  }
}
