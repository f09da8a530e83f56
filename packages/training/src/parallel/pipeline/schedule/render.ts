import { textWidth } from '@tsrun/core'
import { formatAction, type ActionLists } from './actions.ts'
import {
  explainSimulation,
  simulateSchedule,
  type SimulationOptions,
  type TimedAction,
} from './simulate.ts'

/** Options of `Schedule.grid`. */
export interface GridOptions {
  /** The number of characters per line; default: the width of the terminal. */
  readonly width?: number
}

/** Makes each action one time slot long, because the grid shows the order of actions, not durations. */
const slots = { forward: 1, backward: 1, inputGradient: 1, weightGradient: 1 }

/**
 * Draws a schedule as text, with a row per rank and a column per time slot. `F3` is the forward pass of
 * micro-batch 3, and `.` is idle time. If a rank has several stages, the stage number precedes the
 * action. If the schedule is too wide for one line, it is drawn as several blocks. Each block starts
 * with the number of its first slot.
 */
export function drawGrid(
  actions: ActionLists,
  { width: room = textWidth() }: GridOptions = {},
): string {
  const { spans, makespan } = simulateSchedule(actions, slots)
  const severalStages = actions.some((list) => new Set(list.map(({ stage }) => stage)).size > 1)
  const rows = actions.map(() => Array<string>(makespan).fill('.'))
  for (const { rank, stage, kind, microbatch, start } of spans) {
    rows[rank]![start] = `${severalStages ? stage : ''}${kind}${microbatch}`
  }
  const width = rows.flat().reduce((widest, cell) => Math.max(widest, cell.length), 0)
  const margin = `rank ${actions.length - 1}`.length
  const most = Math.max(1, Math.floor((room - margin) / (width + 1)))
  const fitting = Math.ceil(makespan / Math.ceil(makespan / most))
  const blocks = Array.from({ length: Math.ceil(makespan / fitting) }, (_, block) => {
    const first = block * fitting
    const lines = rows.map((cells, rank) => {
      const line = cells.slice(first, first + fitting).map((cell) => cell.padEnd(width))
      return `${`rank ${rank}`.padEnd(margin)} ${line.join(' ')}`.trimEnd()
    })
    return makespan <= fitting ? lines : [`${' '.repeat(margin)} slot ${first}`, ...lines]
  })
  return blocks.map((lines) => lines.join('\n')).join('\n\n')
}

/** Options of `drawSvg`. */
export interface SvgOptions extends SimulationOptions {
  /** The width of the drawing in pixels; default 960. */
  readonly width?: number
}

type Period = Pick<TimedAction, 'rank' | 'start' | 'end'>

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
  { width = 960, ...durations }: SvgOptions = {},
): string {
  const simulation = simulateSchedule(actions, durations)
  const { idle, criticalPath } = explainSimulation(simulation)
  const { makespan, ranks, spans } = simulation
  const scale = makespan === 0 ? 0 : (width - MARGIN - 10) / makespan
  const height = ranks.length * ROW + AXIS
  const bar = ({ rank, start, end }: Period) => {
    const [x, y] = [MARGIN + start * scale, rank * ROW + GAP / 2]
    return `x="${round(x)}" y="${y}" width="${round((end - start) * scale)}" height="${ROW - GAP}"`
  }
  const from = ({ start, end }: Period) => `${round(start)} to ${round(end)}`
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
  const outlines = criticalPath.map((span) => `<rect class="critical" ${bar(span)} rx="2"/>`)
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
    `<g pointer-events="none">${outlines.join('')}</g>`,
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

function ticksOf(makespan: number) {
  if (makespan === 0) return [0]
  const rough = makespan / 8
  const power = 10 ** Math.floor(Math.log10(rough))
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => each >= rough)!
  return Array.from({ length: Math.floor(makespan / step + 1e-9) + 1 }, (_, index) => index * step)
}

function round(value: number) {
  return Number(value.toPrecision(6))
}

/**
 * Simulates a schedule and returns it in the Trace Event Format, which Perfetto and chrome://tracing open,
 * with a thread per rank. Each action is an event, and so is each idle period, with its reason. Durations
 * are in milliseconds.
 *
 * @returns the trace as JSON
 */
export function scheduleTrace(actions: ActionLists, durations: SimulationOptions = {}): string {
  const simulation = simulateSchedule(actions, durations)
  const { idle } = explainSimulation(simulation)
  const event = ({ rank, start, end }: Period, name: string, cat: string, args: object) => ({
    name,
    cat,
    ph: 'X',
    pid: 0,
    tid: rank,
    ts: 1000 * start,
    dur: 1000 * (end - start),
    args,
  })
  const events = [
    ...actions.map((_, rank) => ({
      name: 'thread_name',
      ph: 'M',
      pid: 0,
      tid: rank,
      args: { name: `rank ${rank}` },
    })),
    ...simulation.spans.map((span) => {
      const { kind, stage, microbatch } = span
      return event(span, formatAction(span), kind, { stage, microbatch })
    }),
    ...idle.map((each) => event(each, `idle: ${each.reason}`, 'idle', { why: each.text })),
  ]
  return `${JSON.stringify({ traceEvents: events, displayTimeUnit: 'ms' })}\n`
}
