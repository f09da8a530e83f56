import { formatRanks } from '@tsrun/core'
import type { RankFacts } from '../args/log-prefix.ts'
import { findTrace } from './find-trace.ts'
import type { Line, StreamName } from './lines.ts'
import { coloured, makePresenter, withPrefix, type Presentation } from './presenter.ts'

type Present = (line: Line) => string

/** A trace that is held back, because other ranks may print the same trace. */
interface HeldTrace {
  readonly since: number
  readonly lines: readonly Line[]
  /** For each rank: the formatter of its lines, the lines after the trace, and the text at stream end. */
  readonly ranks: Map<number, { readonly present: Present; after: Line[]; end?: () => string }>
}

/** Milliseconds in which equal traces of several ranks are merged. */
export const TRACE_WINDOW = 200
/** Maximum lines of a rank that are held back after a trace. */
const LONGEST_WAIT = 1000
/** Maximum lines after a trace that are searched for another trace. */
const MOST_LINES = 200

interface TraceMergerOptions {
  readonly colour: boolean
  readonly write: (text: string) => void
  /** Returns the time in milliseconds. */
  readonly clock: () => number
  /** Called when a trace is held back. The caller must call `flush` later. */
  readonly onHold?: () => void
}

export type TraceMerger = ReturnType<typeof mergeTraces>

/**
 * If several ranks print the same stack trace at about the same time, shows it once, with the list of
 * ranks. Later output of these ranks waits for the trace, so that the lines of a rank keep their order.
 */
export function mergeTraces({ colour, write, clock, onHold }: TraceMergerOptions) {
  const held = new Map<string, HeldTrace>()

  const show = (text: string): void => {
    if (text !== '') write(text)
  }

  const waitingOf = (rank: number) => {
    for (const { ranks } of held.values()) {
      const own = ranks.get(rank)
      if (own !== undefined) return own
    }
    return undefined
  }

  const hold = (rank: number, lines: readonly Line[], after: Line[], present: Present): void => {
    const key = lines.map(({ text }) => text).join('\n')
    const known = held.get(key)
    const trace: HeldTrace = known ?? { since: clock(), lines, ranks: new Map() }
    trace.ranks.set(rank, { present, after })
    if (known === undefined) {
      held.set(key, trace)
      onHold?.()
    }
  }

  const showTrace = ({ lines, ranks }: HeldTrace): void => {
    const numbers = [...ranks.keys()]
    const first = Math.min(...numbers)
    const alone = ranks.size === 1 ? ranks.get(first)! : undefined
    const prefix = `${coloured(`[${formatRanks(numbers)}]`, first, colour)} `
    show(
      alone === undefined
        ? withPrefix(prefix, lines.map(({ text }) => text).join('\n'))
        : lines.map(alone.present).join(''),
    )
    for (const [rank, { present, after, end }] of ranks) {
      // Show long output at once, without searching it for another trace.
      if (after.length > MOST_LINES) show(after.map(present).join(''))
      else if (after.length > 0) merger.take(rank, after, present)
      if (end !== undefined) merger.end(rank, end)
    }
  }

  const merger = {
    /** Shows lines of a rank that arrived together. */
    take(rank: number, lines: readonly Line[], present: Present): void {
      const own = waitingOf(rank)
      if (own !== undefined) {
        for (const line of lines) own.after.push(line)
        if (own.after.length > LONGEST_WAIT) merger.flush()
        return
      }
      const place = findTrace(lines.map(({ text, end }) => (end === '\n' ? text : '')))
      if (place === undefined) {
        show(lines.map(present).join(''))
        return
      }
      show(lines.slice(0, place.from).map(present).join(''))
      hold(rank, lines.slice(place.from, place.to), lines.slice(place.to), present)
    },

    /** Shows the remaining text when the stream of a rank has ended. */
    end(rank: number, rest: () => string): void {
      const own = waitingOf(rank)
      if (own === undefined) show(rest())
      else own.end = rest
    },

    /** Shows the traces that are older than the window, or all. */
    flush(window?: number): void {
      const limit = window === undefined ? Infinity : clock() - window
      // Output after a trace may contain another trace.
      for (let isMore = true; isMore;) {
        const due = [...held].filter(([, { since }]) => since <= limit)
        for (const [key] of due) held.delete(key)
        for (const [, trace] of due) showTrace(trace)
        isMore = due.length > 0 && window === undefined
      }
    },
  }
  return merger
}

/** Shows one stream of a rank. On stderr, merges equal stack traces of several ranks. */
export function viewStream(
  how: Presentation,
  facts: RankFacts,
  stream: StreamName,
  merger: TraceMerger,
  write: (stream: StreamName, text: string) => void,
) {
  const { rank, worldSize } = facts
  const { output, present, end } = makePresenter(how, facts, stream)
  // Do not merge traces if the user gave a prefix, because every line must then have its own prefix.
  const isMerged =
    stream === 'stderr' && how.format === 'pretty' && how.prefix === undefined && worldSize > 1
  const show = (text: string): void => {
    if (text !== '') write(output, text)
  }
  return {
    output,
    /** Shows lines that arrived together, in one call. */
    take(lines: readonly Line[]): void {
      if (isMerged) merger.take(rank, lines, present)
      else show(lines.map(present).join(''))
    },
    end(): void {
      if (isMerged) merger.end(rank, end)
      else show(end())
    },
  }
}
