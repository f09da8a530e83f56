/** Milliseconds between two signs of life. */
export const BEAT = 1000
/** Silence of so many beats is mentioned. */
const NOTABLE = 5

export interface SilenceEvents {
  readonly onSilent: (seconds: number) => void
  readonly onBack: (seconds: number) => void
  /** Once: nothing was heard for the whole limit. */
  readonly onLost: () => void
}

/**
 * Counts the beats that were missed. Counting, not reading the clock: a launcher that was stopped
 * (Ctrl-Z) for an hour finds the others' signs of life in its socket when it goes on.
 */
export class Silence {
  readonly #limit: number
  readonly #events: SilenceEvents
  #missed = 0

  /** @param limit - milliseconds */
  constructor(limit: number, events: SilenceEvents) {
    this.#limit = Math.max(1, Math.ceil(limit / BEAT))
    this.#events = events
  }

  heard(): void {
    if (this.#missed > NOTABLE) this.#events.onBack((this.#missed * BEAT) / 1000)
    this.#missed = 0
  }

  /** To be called every BEAT milliseconds. */
  tick(): void {
    this.#missed++
    const isLost = this.#missed === this.#limit + 1
    if (isLost) this.#events.onLost()
    else if (this.#missed === NOTABLE + 1 && this.#missed <= this.#limit) {
      this.#events.onSilent((NOTABLE * BEAT) / 1000)
    }
  }
}
