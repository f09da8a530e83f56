import { textWidth } from '../format.ts'
import { monotonicNow } from '../time.ts'

/** Milliseconds between two lines if there is no terminal, on which a line can be overwritten. */
const LINE_EVERY = 3000
const REDRAW_EVERY = 100

/**
 * Shows progress on standard output: in one line that is overwritten on a terminal, in a line every few
 * seconds elsewhere.
 */
export class ProgressLine {
  readonly #inPlace = process.stdout.isTTY
  #shown = monotonicNow()
  #isOpen = false

  /** @param describe - returns the text; called only if it is shown */
  update(describe: () => string): void {
    const now = monotonicNow()
    if (now - this.#shown < (this.#inPlace ? REDRAW_EVERY : LINE_EVERY)) return
    this.#shown = now
    if (!this.#inPlace) {
      process.stdout.write(`${describe()}\n`)
      return
    }
    // A line that wraps could not be overwritten.
    const text = describe().slice(0, textWidth() - 1)
    process.stdout.write(`\r${text}\x1b[K`)
    this.#isOpen = true
  }

  /** Prints a line that stays. */
  log(text: string): void {
    process.stdout.write(`${this.#isOpen ? '\r\x1b[K' : ''}${text}\n`)
    this.#isOpen = false
  }
}
