import { codeOf } from '../errors/tsr-error.ts'
import { textWidth } from '../format.ts'
import { monotonicNow } from '../time.ts'

/** Milliseconds between lines if the output is not a terminal. */
const LINE_EVERY = 3000
const REDRAW_EVERY = 100

/** Shows progress: rewrites one line on a terminal, and prints a line every few seconds elsewhere. */
export class ProgressLine {
  readonly #inPlace = process.stdout.isTTY
  #shown = monotonicNow()
  #isOpen = false

  /** @param describe - returns the text; called only when the text is shown */
  update(describe: () => string): void {
    const now = monotonicNow()
    if (now - this.#shown < (this.#inPlace ? REDRAW_EVERY : LINE_EVERY)) return
    this.#shown = now
    if (!this.#inPlace) {
      print(`${describe()}\n`)
      return
    }
    // Keep the text on one line, because a wrapped line could not be overwritten.
    const text = describe().slice(0, textWidth() - 1)
    print(`\r${text}\x1b[K`)
    this.#isOpen = true
  }

  /** Prints a line that is not overwritten later. */
  log(text: string): void {
    print(`${this.#isOpen ? '\r\x1b[K' : ''}${text}\n`)
    this.#isOpen = false
  }
}

/** Ignores a closed pipe, as console.log does, so that `node train.mjs | head` trains to the end. */
function print(text: string) {
  const { stdout } = process
  stdout.write(text, (error) => {
    const isGone = codeOf(error) === 'EPIPE'
    if (isGone && stdout.listenerCount('error') === 0) stdout.once('error', () => undefined)
  })
}
