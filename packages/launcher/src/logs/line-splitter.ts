import { StringDecoder } from 'node:string_decoder'
import type { Line } from './line.ts'

/** Longest piece in characters; a longer line comes in several, so that memory stays bounded. */
const LINE_LIMIT = 64 * 1024

/** Cuts a byte stream into lines; a partial line waits for its end. */
export class LineSplitter {
  readonly #decoder = new StringDecoder('utf8')
  readonly #limit: number
  #rest = ''

  constructor(limit = LINE_LIMIT) {
    this.#limit = limit
  }

  push(chunk: Uint8Array): Line[] {
    return this.#split(this.#rest + this.#decoder.write(chunk))
  }

  /** What is left at the end of the stream, as if it had ended its line. */
  flush(): Line[] {
    const lines = this.#split(this.#rest + this.#decoder.end())
    if (this.#rest !== '') lines.push({ text: this.#rest, end: '\n' })
    this.#rest = ''
    return lines
  }

  #split(text: string): Line[] {
    const lines: Line[] = []
    let start = 0
    for (const match of text.matchAll(/\r?\n|\r/g)) {
      this.#cut(text.slice(start, match.index), match[0] === '\r' ? '\r' : '\n', lines)
      start = match.index + match[0].length
    }
    this.#rest = this.#cutLong(text.slice(start), lines)
    return lines
  }

  #cut(text: string, end: Line['end'], lines: Line[]): void {
    lines.push({ text: this.#cutLong(text, lines), end })
  }

  #cutLong(text: string, lines: Line[]): string {
    let from = 0
    for (; text.length - from > this.#limit; from += this.#limit) {
      lines.push({ text: text.slice(from, from + this.#limit), end: '' })
    }
    return text.slice(from)
  }
}
