import { stripVTControlCharacters } from 'node:util'
import type { Line } from './line.ts'

const KEPT_LINES = 100
const KEPT_CHARACTERS = 2000

/** The last lines of a rank's standard error, for the failure report. */
export class StderrTail {
  readonly #lines: string[] = []
  /** V8 said so, before so many lines of a native stack that the tail has lost it. */
  heapExhausted = false

  push({ text, end }: Line): void {
    if (end === '\r') return
    if (/^FATAL ERROR: .*JavaScript heap out of memory/.test(text)) this.heapExhausted = true
    this.#lines.push(stripVTControlCharacters(text.slice(0, KEPT_CHARACTERS)))
    if (this.#lines.length > KEPT_LINES) this.#lines.shift()
  }

  get lines(): readonly string[] {
    return this.#lines
  }
}
