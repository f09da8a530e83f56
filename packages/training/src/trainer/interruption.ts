import { setImmediate } from 'node:timers/promises'
import type { FitEnd } from './fit-options.ts'
import type { Trainer } from './trainer.ts'

/** Under `tsrun`, Ctrl-C is SIGTERM for the ranks; without it, SIGINT. */
const SIGNALS = ['SIGTERM', 'SIGUSR1', 'SIGINT'] as const
/** 128 and the number of the signal, as shells report it. */
const EXIT_CODES = { SIGTERM: 143, SIGUSR1: 138, SIGINT: 130 } as const

/** What ends a training before it is complete. */
type Stop = Exclude<FitEnd, 'complete'>

/** If ranks ask for different things, the one later in this list wins. */
const STOPS = ['callback', ...SIGNALS] as const satisfies readonly Stop[]

/**
 * Notices signals that ask to save and stop. The ranks may get them at different steps, or only some of
 * them may: they agree after each step.
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
   * The signal that any rank has got, or `callback` if one asks to stop. All ranks call it after each
   * step.
   *
   * @param asked - whether a callback of this rank asks to stop
   */
  async agree(run: Trainer, asked: boolean): Promise<Stop | undefined> {
    // Handlers of signals run only when the event loop turns, which a step need not let it do.
    await setImmediate()
    const own = this.#signal ?? (asked ? 'callback' : undefined)
    const agreed = await run.largest(own === undefined ? 0 : STOPS.indexOf(own) + 1)
    return STOPS[agreed - 1]
  }

  /** After an interruption this process ends with the signal's exit code, unless it has another one. */
  setExitCode(end: FitEnd): void {
    if (end in EXIT_CODES) process.exitCode ??= EXIT_CODES[end as keyof typeof EXIT_CODES]
  }

  dispose(): void {
    for (const { signal, listener } of this.#listeners) process.off(signal, listener)
  }
}
