import { textWidth } from '@tsrun/core'
import { actionKinds, type Span, type SpanKind } from './spans.ts'

/** Options of `drawTimeline`. */
export interface TimelineOptions {
  /** Characters per line, including the labels of the ranks. Default: the width of the terminal. */
  readonly width?: number
}

/** The fill character and the legend of each kind. Other kinds are not drawn. */
const signs: Partial<Record<SpanKind, { readonly fill: string; readonly meaning: string }>> = {
  F: { fill: '-', meaning: 'F3-- forward of micro-batch 3' },
  B: { fill: '=', meaning: 'B3== backward' },
  I: { fill: '=', meaning: 'I3== backward, gradients of inputs' },
  W: { fill: '~', meaning: 'W3~~ backward, gradients of weights' },
  optimizer: { fill: 'o', meaning: 'o optimizer' },
  collective: { fill: 'c', meaning: 'c collective' },
  wait: { fill: '.', meaning: '. waiting for a message' },
}

/**
 * Draws the spans of all ranks on one time axis, with a row for each rank and a legend. A span has
 * at least one character, and as much of its label as fits.
 */
export function drawTimeline(
  spans: readonly Span[],
  { width = textWidth() }: TimelineOptions = {},
): string {
  if (spans.length === 0) return '(no spans)'
  const from = spans.reduce((earliest, { start }) => Math.min(earliest, start), Infinity)
  const to = spans.reduce((latest, { end }) => Math.max(latest, end), -Infinity)
  const ranks = [...new Set(spans.map(({ rank }) => rank))].sort((a, b) => a - b)
  const margin = `r${ranks.at(-1)!}`.length
  const length = Math.max(1, width - margin - 1)
  const rows = ranks.map((rank) => {
    const own = spans.filter((span) => span.rank === rank)
    const row = drawRow(own, length, from, to > from ? length / (to - from) : 0)
    return `${`r${rank}`.padEnd(margin)} ${row}`.trimEnd()
  })
  const axis = `${' '.repeat(margin)} 0${`${(to - from).toFixed(1)} ms`.padStart(length - 1)}`
  return [...rows, axis, '', ...legend(spans, width)].join('\n')
}

function labelOf({ kind, microbatch }: Span): string {
  return actionKinds.has(kind) ? `${kind}${microbatch ?? ''}` : ''
}

function drawRow(spans: readonly Span[], length: number, from: number, scale: number): string {
  const row = Array<string>(length).fill(' ')
  const waits = spans.filter(({ kind }) => kind === 'wait')
  // Draw waits first, so that other spans cover them.
  for (const span of [...waits, ...spans.filter(({ kind }) => kind !== 'wait')]) {
    const sign = signs[span.kind]
    if (sign === undefined) continue
    const first = Math.min(length - 1, Math.round((span.start - from) * scale))
    const last = Math.max(first + 1, Math.round((span.end - from) * scale))
    row.fill(sign.fill, first, last)
    const label = labelOf(span)
    for (let at = 0; at < Math.min(label.length, last - first); at++) row[first + at] = label[at]!
  }
  return row.join('')
}

/** Returns the legend for these spans, in lines of at most `width` characters. */
function legend(spans: readonly Span[], width: number): string[] {
  const kinds = new Set(spans.map(({ kind }) => kind))
  const entries = (Object.keys(signs) as SpanKind[])
    .filter((kind) => kinds.has(kind))
    .map((kind) => signs[kind]!.meaning)
  const lines: string[] = []
  for (const entry of [...entries, 'blank: anything else']) {
    const line = lines.at(-1)
    if (line === undefined) lines.push(entry)
    else if (line.length + 3 + entry.length <= width) lines[lines.length - 1] = `${line}   ${entry}`
    else lines.push(entry)
  }
  return lines
}
