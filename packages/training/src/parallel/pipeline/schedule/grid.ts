import { tsrError } from '@tsrun/core'
import type { ActionLists } from './action.ts'
import { simulateSchedule } from './simulate.ts'

export interface GridOptions {
  /** Slots that a forward takes, at least 1; default 1. */
  readonly forward?: number
  /** Slots that a backward (or each half) takes, at least 1; default 1. */
  readonly backward?: number
}

/**
 * Draws a schedule: a row for each rank, a column for each time slot. `F3` is the forward of
 * micro-batch 3, `==` its later slots, `.` idle; with several stages a rank the stage comes first.
 */
export function drawGrid(
  actions: ActionLists,
  { forward = 1, backward = 1 }: GridOptions = {},
): string {
  for (const [name, value] of Object.entries({ forward, backward })) {
    if (!Number.isSafeInteger(value) || value < 1) {
      throw tsrError('ERR_TSR_ARGUMENT', { name, value, expected: 'a whole number of slots' })
    }
  }
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
