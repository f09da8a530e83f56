import type { Line } from './line.ts'

/** Milliseconds between two states of a progress bar that are shown as lines. */
const PAUSE = 1000

/**
 * Makes whole lines of output that writes over itself, as a terminal would leave them: of the
 * states of a progress bar (`10 %\r20 %\r…`) the last one stays, and now and then one on the way.
 */
export class ProgressCollapser {
  readonly #now: () => number
  #state = ''
  #shownAt = -Infinity

  /** @param now - milliseconds of a monotonic clock */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now
  }

  /** The line to show for this piece; undefined if none. */
  push({ text, end }: Line): string | undefined {
    if (end !== '\r') {
      const line = text === '' ? this.#state : text
      this.#state = ''
      return line
    }
    if (text === '') return undefined
    this.#state = text
    if (this.#now() - this.#shownAt < PAUSE) return undefined
    this.#shownAt = this.#now()
    return text
  }

  /** The last state, if its line was never ended. */
  flush(): string | undefined {
    const state = this.#state
    this.#state = ''
    return state === '' ? undefined : state
  }
}
