import { formatAction, type ActionLists } from './actions.ts'
import { explainSimulation } from './explain.ts'
import { simulateSchedule, type SimulationOptions } from './simulate.ts'

/** Options of `drawSvg`. */
export interface SvgOptions extends SimulationOptions {
  /** The width of the drawing in pixels; default 960. */
  readonly width?: number
  /** Whether to outline the critical path, whose actions determine the length of the step; default true. */
  readonly criticalPath?: boolean
}

const ROW = 30
const GAP = 4
const MARGIN = 58
const AXIS = 24

const style = `
.slot-F{fill:#3b73b9}.slot-B{fill:#2f7d4f}.slot-I{fill:#1f7a85}.slot-W{fill:#a8541a}
.slot text,.labels text{font:11px ui-monospace,monospace}.slot text{fill:#fff;text-anchor:middle}
.labels text{fill:#444}.idle{fill:#8884}.critical{fill:none;stroke:#d7263d;stroke-width:2}
@media (prefers-color-scheme:dark){.labels text{fill:#ccc}.critical{stroke:#ff7b89}}`

/**
 * Draws a schedule as SVG: a row per rank, time to the right, and a bar for each action. Each bar and
 * each idle period has a `<title>`, which viewers show as a tooltip. The title says what runs, or why the
 * rank is idle. Bars have the CSS classes `slot-F`, `slot-B`, `slot-I` and `slot-W`.
 */
export function drawSvg(
  actions: ActionLists,
  { width = 960, criticalPath = true, ...durations }: SvgOptions = {},
): string {
  const simulation = simulateSchedule(actions, durations)
  const { idle, criticalPath: path } = explainSimulation(simulation)
  const { makespan, ranks, spans } = simulation
  const scale = makespan === 0 ? 0 : (width - MARGIN - 10) / makespan
  const height = ranks.length * ROW + AXIS
  const bar = ({ rank, start, end }: { rank: number; start: number; end: number }): string => {
    const [x, y] = [MARGIN + start * scale, rank * ROW + GAP / 2]
    return `x="${round(x)}" y="${y}" width="${round((end - start) * scale)}" height="${ROW - GAP}"`
  }
  const from = ({ start, end }: { start: number; end: number }): string =>
    `${round(start)} to ${round(end)}`
  const slots = spans.map((span) => {
    const text = formatAction(span)
    const room = (span.end - span.start) * scale
    const [x, y] = [MARGIN + ((span.start + span.end) / 2) * scale, span.rank * ROW + ROW / 2 + 4]
    const label =
      room >= text.length * 6.6 ? `<text x="${round(x)}" y="${round(y)}">${text}</text>` : ''
    const what = kinds[span.kind]
    const title = `${text}: ${what} of micro-batch ${span.microbatch} through stage ${span.stage}, ${from(span)}`
    return `<g class="slot"><rect class="slot-${span.kind}" ${bar(span)} rx="2"><title>${title}</title></rect>${label}</g>`
  })
  const gaps = idle.map(
    (each) =>
      `<rect class="idle" data-reason="${each.reason}" tabindex="-1" ${bar(each)}><title>${each.text}, ${from(each)} (${each.reason})</title></rect>`,
  )
  const outlines = path.map((span) => `<rect class="critical" ${bar(span)} rx="2"/>`)
  const labels = ranks.map(
    (_, rank) => `<text x="4" y="${rank * ROW + ROW / 2 + 4}">rank ${rank}</text>`,
  )
  const ticks = ticksOf(makespan).map(
    (time) =>
      `<text x="${round(MARGIN + time * scale)}" y="${height - 6}" text-anchor="middle">${round(time)}</text>`,
  )
  return [
    `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 ${width} ${height}" width="${width}" height="${height}" role="img" aria-label="schedule of ${ranks.length} ranks">`,
    `<style>${style.replaceAll('\n', '')}</style>`,
    ...gaps,
    ...slots,
    ...(criticalPath ? [`<g pointer-events="none">${outlines.join('')}</g>`] : []),
    `<g class="labels">${[...labels, ...ticks].join('')}</g>`,
    '</svg>',
  ].join('\n')
}

const kinds = {
  F: 'forward pass',
  B: 'backward pass',
  I: 'gradient of the input',
  W: 'gradients of the weights',
} as const

function ticksOf(makespan: number): number[] {
  if (makespan === 0) return [0]
  const rough = makespan / 8
  const power = 10 ** Math.floor(Math.log10(rough))
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= rough)!
  return Array.from({ length: Math.floor(makespan / step + 1e-9) + 1 }, (_, index) => index * step)
}

function round(value: number): number {
  return Number(value.toPrecision(6))
}
