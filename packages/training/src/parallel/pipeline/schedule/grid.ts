import { count, textWidth } from '@tsrun/core'
import type { ActionLists } from './actions.ts'
import { simulateSchedule } from './simulate.ts'

/** Options of `Schedule.grid`. */
export interface GridOptions {
  /** Time slots of a forward pass, at least 1; default 1. */
  readonly forward?: number
  /** Time slots of a backward pass, or of each half of one, at least 1; default 1. */
  readonly backward?: number
  /** The number of characters per line; default: the width of the terminal. */
  readonly width?: number
}

const slots = count({ from: 1 })

/**
 * Draws a schedule as text, with a row per rank and a column per time slot. `F3` is the forward pass of
 * micro-batch 3. `==` continues an action that takes several slots, and `.` is idle time. If a rank has
 * several stages, the stage number precedes the action. If the schedule is too wide for one line, it is
 * drawn as several blocks. Each block starts with the number of its first slot.
 */
export function drawGrid(
  actions: ActionLists,
  { forward = 1, backward = 1, width: room = textWidth() }: GridOptions = {},
): string {
  slots.check('forward', forward)
  slots.check('backward', backward)
  const { spans, makespan } = simulateSchedule(actions, {
    forward,
    backward,
    inputGradient: backward,
    weightGradient: backward,
  })
  const severalStages = actions.some((list) => new Set(list.map(({ stage }) => stage)).size > 1)
  const rows = actions.map(() => Array<string>(makespan).fill('.'))
  for (const { rank, stage, kind, microbatch, start, end } of spans) {
    const label = `${severalStages ? stage : ''}${kind}${microbatch}`
    rows[rank]!.fill('='.repeat(label.length), start, end)
    rows[rank]![start] = label
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
