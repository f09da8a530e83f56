import { count } from '@tsrun/core'
import type { ActionLists } from './actions.ts'
import { simulateSchedule } from './simulate.ts'

export interface GridOptions {
  /** Time slots of a forward pass, at least 1; default 1. */
  readonly forward?: number
  /** Time slots of a backward pass (or each half of one), at least 1; default 1. */
  readonly backward?: number
}

const slots = count({ from: 1 })

/**
 * Draws a schedule with a row per rank and a column per time slot. `F3` is the forward pass of
 * micro-batch 3, `==` its later slots, and `.` idle time. If ranks have several stages, the stage comes
 * first.
 */
export function drawGrid(
  actions: ActionLists,
  { forward = 1, backward = 1 }: GridOptions = {},
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
  return rows
    .map((cells, rank) => {
      const line = cells.map((cell) => cell.padEnd(width)).join(' ')
      return `${`rank ${rank}`.padEnd(margin)} ${line}`.trimEnd()
    })
    .join('\n')
}
