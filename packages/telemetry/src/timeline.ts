import type { Span, SpanKind } from './spans.ts'

export interface TimelineOptions {
  /** The width of the time axis in characters; default 100. */
  readonly width?: number
}

/** The character that fills a span after its label. Kinds without an entry are not drawn. */
const fills: Partial<Record<SpanKind, string>> = {
  F: '-',
  B: '=',
  I: '=',
  W: '~',
  optimizer: 'o',
  collective: 'c',
}

const labelled: ReadonlySet<SpanKind> = new Set<SpanKind>(['F', 'B', 'I', 'W'])

/**
 * Draws the spans of all ranks on one time axis, with a row for each rank: `F3--` is the forward and `B3==`
 * the backward pass of micro-batch 3, `o` the optimizer, `c` a collective, and `.` waiting for a message.
 * The rest is blank. A span has at least one character.
 */
export function drawTimeline(
  spans: readonly Span[],
  { width = 100 }: TimelineOptions = {},
): string {
  if (spans.length === 0) return '(no spans)'
  const from = spans.reduce((earliest, { start }) => Math.min(earliest, start), Infinity)
  const to = spans.reduce((latest, { end }) => Math.max(latest, end), -Infinity)
  const scale = to > from ? width / (to - from) : 0
  const columns = ({ start, end }: Span): [number, number] => {
    const first = Math.min(width - 1, Math.round((start - from) * scale))
    return [first, Math.max(first + 1, Math.round((end - from) * scale))]
  }
  const ranks = [...new Set(spans.map(({ rank }) => rank))].sort((a, b) => a - b)
  const rows = ranks.map((rank) => {
    const row = Array<string>(width).fill(' ')
    const own = spans.filter((span) => span.rank === rank)
    for (const span of own.filter(({ kind }) => kind === 'wait')) row.fill('.', ...columns(span))
    for (const span of own) {
      const fill = fills[span.kind]
      if (fill === undefined) continue
      const [first, last] = columns(span)
      row.fill(fill, first, last)
      const label = labelled.has(span.kind) ? `${span.kind}${span.microbatch ?? ''}` : ''
      for (let at = 0; at < Math.min(label.length, last - first); at++) row[first + at] = label[at]!
    }
    return row.join('').trimEnd()
  })
  const margin = `r${ranks.at(-1)!}`.length
  const length = `${(to - from).toFixed(1)} ms`
  const axis = `0${length.padStart(width - 1, ' ')}`
  return [
    ...rows.map((row, at) => `${`r${ranks[at]!}`.padEnd(margin)} ${row}`),
    `${' '.repeat(margin)} ${axis}`,
  ].join('\n')
}
