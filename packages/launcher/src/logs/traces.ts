import { formatRanks } from '@tsrun/core'
import type { Line } from './lines.ts'
import { coloured, withPrefix } from './presenter.ts'

/** Lines from `from` up to but not including `to`. */
interface Place {
  readonly from: number
  readonly to: number
}

const FRAME = /^\s+at .*(:\d+\)?|\(<anonymous>\)|\(index \d+\)|<anonymous>)$/
const PYTHON = /^Traceback \(most recent call last\):/
/** The first line of an error: `TypeError: x is not a function`, `Uncaught MyError`. */
const HEADER = /^(Uncaught |\[?)[\w.$]*(Error|Exception|Warning)\b/
/** Where Node says that an error arose, above the source and the error itself. */
const SOURCE = /^(file:\/\/|node:|\/).*:\d+$/
/** Lines of a message, or of an excerpt of the source, above the first frame. */
const LONGEST_HEAD = 10

/** The first stack trace in these lines, of Node or of Python; undefined if there is none. */
export function findTrace(lines: readonly string[]): Place | undefined {
  const mark = lines.findIndex((line) => FRAME.test(line) || PYTHON.test(line))
  if (mark < 0) return undefined
  if (PYTHON.test(lines[mark]!)) {
    const last = lines.findIndex((line, index) => index > mark && /^\S/.test(line))
    return last < 0 ? { from: mark, to: lines.length } : { from: mark, to: last + 1 }
  }
  let to = mark + 1
  while (to < lines.length && /^\s+\S|^[}\]]/.test(lines[to]!)) to++
  if (lines[to] === '' && /^Node\.js v\d/.test(lines[to + 1] ?? '')) to += 2
  return { from: findHead(lines, mark), to }
}

function findHead(lines: readonly string[], mark: number): number {
  const lowest = Math.max(0, mark - LONGEST_HEAD)
  const above = lines.slice(lowest, mark)
  const header = above.findLastIndex((line) => HEADER.test(line))
  const start = header < 0 ? Math.max(0, mark - 1) : lowest + header
  const source = lines
    .slice(Math.max(0, start - LONGEST_HEAD), start)
    .findLastIndex((line) => SOURCE.test(line))
  return source < 0 ? start : Math.max(0, start - LONGEST_HEAD) + source
}

/** A trace that waits for other ranks to print it as well. */
interface HeldTrace {
  readonly since: number
  readonly lines: readonly string[]
  /** By rank: the trace as the rank alone would show it, and what the rank has printed after it. */
  readonly ranks: Map<number, { readonly alone: string; after: string }>
}

/** Milliseconds in which ranks print one trace together. */
export const TRACE_WINDOW = 200
/** Characters that a rank may print after a trace before it is shown. */
const LONGEST_WAIT = 1024 * 1024

export interface TraceMergerOptions {
  readonly colour: boolean
  readonly write: (text: string) => void
  /** Milliseconds. */
  readonly clock: () => number
  /** Called when a trace is held that `flush` has to show. */
  readonly onHold?: () => void
}

/**
 * Shows a stack trace that several ranks print within a moment once, with the list of these ranks. What a
 * rank prints after a trace waits with it, so that the lines of a rank keep their order.
 */
export class TraceMerger {
  readonly #options: TraceMergerOptions
  readonly #held = new Map<string, HeldTrace>()

  constructor(options: TraceMergerOptions) {
    this.#options = options
  }

  /** Shows lines of a rank that have arrived together. */
  take(rank: number, lines: readonly Line[], present: (line: Line) => string): void {
    const show = (some: readonly Line[]): string => some.map(present).join('')
    const holding = this.#holding(rank)
    if (holding !== undefined) {
      const own = holding.ranks.get(rank)!
      own.after += show(lines)
      if (own.after.length > LONGEST_WAIT) this.flush()
      return
    }
    const place = findTrace(lines.map(({ text, end }) => (end === '\n' ? text : '')))
    if (place === undefined) {
      this.#write(show(lines))
      return
    }
    this.#write(show(lines.slice(0, place.from)))
    const trace = lines.slice(place.from, place.to)
    const alone = show(trace)
    this.#hold(rank, trace, { alone, after: show(lines.slice(place.to)) })
  }

  /** Adds to what a rank prints, at the end of its stream. */
  append(rank: number, text: string): void {
    const own = this.#holding(rank)?.ranks.get(rank)
    if (own === undefined) this.#write(text)
    else own.after += text
  }

  /** Shows the traces that have waited for the time of a window, or all. */
  flush(window = -Infinity): void {
    const limit = this.#options.clock() - window
    for (const [key, trace] of this.#held) {
      if (trace.since > limit) continue
      this.#held.delete(key)
      this.#show(trace)
    }
  }

  #hold(rank: number, trace: readonly Line[], shown: { alone: string; after: string }): void {
    const lines = trace.map(({ text }) => text)
    const key = lines.join('\n')
    const held = this.#held.get(key) ?? { since: this.#options.clock(), lines, ranks: new Map() }
    held.ranks.set(rank, shown)
    if (this.#held.has(key)) return
    this.#held.set(key, held)
    this.#options.onHold?.()
  }

  #holding(rank: number): HeldTrace | undefined {
    for (const trace of this.#held.values()) if (trace.ranks.has(rank)) return trace
    return undefined
  }

  #show({ lines, ranks }: HeldTrace): void {
    const all = [...ranks.values()]
    const numbers = [...ranks.keys()]
    const first = Math.min(...numbers)
    const prefix = `${coloured(`[${formatRanks(numbers)}]`, first, this.#options.colour)} `
    this.#write(all.length === 1 ? all[0]!.alone : withPrefix(prefix, lines.join('\n')))
    for (const { after } of all) this.#write(after)
  }

  #write(text: string): void {
    if (text !== '') this.#options.write(text)
  }
}
