import { StringDecoder } from 'node:string_decoder'
import { stripVTControlCharacters } from 'node:util'
import { visibleText } from '@tsrun/core'

export type StreamName = 'stdout' | 'stderr'

/** A line of output, or a part of one. */
export interface Line {
  readonly text: string
  /** `\r`: the writer overwrites the line; '': a part of a long line, which continues. */
  readonly end: '\n' | '\r' | ''
}

export type RankLineReader = (rank: number, stream: StreamName, line: Line) => void

/** Maximum characters of a piece. Longer lines are split, so that memory is bounded. */
const LINE_LIMIT = 64 * 1024

/** Splits a stream of bytes into lines. Buffers an incomplete line. */
export function lineSplitter(limit = LINE_LIMIT) {
  const decoder = new StringDecoder('utf8')
  let rest = ''

  const cutLong = (text: string, lines: Line[]): string => {
    let from = 0
    for (; text.length - from > limit; from += limit) {
      lines.push({ text: text.slice(from, from + limit), end: '' })
    }
    return text.slice(from)
  }

  const split = (text: string): Line[] => {
    const lines: Line[] = []
    let start = 0
    for (const match of text.matchAll(/\r?\n|\r/g)) {
      const line = cutLong(text.slice(start, match.index), lines)
      lines.push({ text: line, end: match[0] === '\r' ? '\r' : '\n' })
      start = match.index + match[0].length
    }
    rest = cutLong(text.slice(start), lines)
    return lines
  }

  return {
    push: (chunk: Uint8Array): Line[] => split(rest + decoder.write(chunk)),

    /** Returns the buffered text at the end of the stream as a complete line. */
    flush(): Line[] {
      const lines = split(rest + decoder.end())
      if (rest !== '') lines.push({ text: rest, end: '\n' })
      rest = ''
      return lines
    },
  }
}

/** Removes terminal control sequences, and characters that could start one. */
export function withoutCodes(text: string): string {
  // Most lines have no control characters, and this test is faster than the search.
  if (!/[\x0e\x0f\x1b\x80-\x9f]/.test(text)) return text
  return stripVTControlCharacters(text).replaceAll(/[\x0e\x0f\x1b\x90\x98\x9b\x9d-\x9f]/g, '')
}

/** Milliseconds between two states of a progress bar that are shown as lines. */
const PAUSE = 1000

/**
 * Turns output that overwrites itself, such as a progress bar (`10 %\r20 %\r…`), into whole lines. Keeps
 * about one state a second, and the final state.
 *
 * @param now - milliseconds of a monotonic clock
 */
export function collapseProgress(now = () => performance.now()) {
  let state = ''
  let shownAt = -Infinity
  return {
    /** The line to show for this piece; undefined if there is none. */
    push({ text, end }: Line): string | undefined {
      if (end !== '\r') {
        const line = text === '' ? state : text
        state = ''
        return line
      }
      if (text === '') return undefined
      state = text
      if (now() - shownAt < PAUSE) return undefined
      shownAt = now()
      return text
    },

    /** The last state, if its line has not ended. */
    flush(): string | undefined {
      const last = state === '' ? undefined : state
      state = ''
      return last
    },
  }
}

const KEPT_LINES = 100
const KEPT_CHARACTERS = 2000

/** The last lines of a rank's standard error, for the failure report. */
export class StderrTail {
  readonly lines: string[] = []
  /** Whether V8 ran out of heap. The native stack may have pushed V8's message out of `lines`. */
  heapExhausted = false

  push({ text, end }: Line): void {
    if (end === '\r') return
    if (/^FATAL ERROR: .*JavaScript heap out of memory/.test(text)) this.heapExhausted = true
    this.lines.push(withoutCodes(text.slice(0, KEPT_CHARACTERS)))
    if (this.lines.length > KEPT_LINES) this.lines.shift()
  }
}

/** Formats a line of JSON. Escapes all control characters, because terminals may show the line. */
export function jsonLine(value: unknown): string {
  // JSON.stringify does not escape DEL, and visibleText would replace DEL by a symbol.
  const json = JSON.stringify(value).replaceAll('\x7f', '\\u007f')
  return `${visibleText(json)}\n`
}
