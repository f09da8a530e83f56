import { tsrError } from '@tsrun/core'
import { parseAction, type Action, type ActionLists } from './action.ts'
import { parseActions } from './action-text.ts'
import { extentOf } from './dependencies.ts'
import { drawGrid, type GridOptions } from './grid.ts'
import { orders, takesChunks } from './orders.ts'
import { simulateSchedule, type Simulation, type SimulationOptions } from './simulate.ts'
import { validateSchedule } from './validate.ts'

export type ScheduleName = keyof typeof orders

export const scheduleNames = Object.keys(orders) as ScheduleName[]

export interface ScheduleOptions {
  /** Number of pipeline stages; at least 1. */
  readonly stages: number
  /** Ranks that the stages are dealt to in turn; default: a rank for each. Fewer for `interleaved` and `looped` only. */
  readonly ranks?: number
  /** Parts that a batch is cut into; at least 1, also fewer than stages. */
  readonly microbatches: number
}

/** Who does what, in which order: a list of actions for each rank, and what can be told from it. */
export interface Schedule {
  readonly name: string
  readonly stages: number
  readonly microbatches: number
  readonly actions: ActionLists
  /** The rank that each stage lives on. */
  readonly placement: readonly number[]
  /** @throws ERR_TSR_SCHEDULE naming the first offending action */
  validate(): void
  /** Times the schedule; see `simulateSchedule`. */
  simulate(options?: SimulationOptions): Simulation
  /** Draws the schedule; see `drawGrid`. */
  grid(options?: GridOptions): string
}

/**
 * Makes the schedule `name`, for one stage a rank, or for several of them with `interleaved` and `looped`.
 *
 * @example
 * schedule('1f1b', { stages: 4, microbatches: 8 }).simulate({ forward: 1, backward: 2 }).bubble
 * // 3 / 11: (stages - 1) / (microbatches + stages - 1)
 *
 * @throws ERR_TSR_ARGUMENT for an unknown name, or counts that are no whole numbers from 1
 */
export function schedule(
  name: ScheduleName,
  { stages, microbatches, ranks = stages }: ScheduleOptions,
): Schedule {
  if (!scheduleNames.includes(name)) {
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: 'schedule',
      value: JSON.stringify(name),
      expected: `one of ${scheduleNames.join(', ')}`,
    })
  }
  requireCount('stages', stages)
  requireCount('microbatches', microbatches)
  requireCount('ranks', ranks)
  if (takesChunks(name) ? stages % ranks !== 0 : stages !== ranks) {
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: 'stages',
      value: stages,
      expected: takesChunks(name) ? `a multiple of the ${ranks} ranks` : `${ranks}, one a rank`,
    })
  }
  const lists = Array.from({ length: ranks }, (_, rank) =>
    orders[name](rank, ranks, microbatches, stages / ranks),
  )
  return new ActionSchedule(name, lists)
}

/** Lists of actions for each rank, as objects or as text like `0F3`. */
export type GivenLists = readonly (readonly (Action | string)[])[]

/**
 * A schedule of your own: a list of actions for each rank. A stage may live on any rank.
 *
 * @example
 * customSchedule([['0F0', '0F1', '0B0', '0B1'], ['1F0', '1B0', '1F1', '1B1']])
 *
 * @throws ERR_TSR_SCHEDULE naming rank, place and reason when it is impossible
 */
export function customSchedule(actions: GivenLists, name = 'custom'): Schedule {
  const read = actions.map((list, rank) =>
    list.map((action, position) =>
      typeof action === 'string'
        ? parseAction(action, `rank ${rank}, action ${position}: `)
        : action,
    ),
  )
  validateSchedule(read)
  return new ActionSchedule(name, read)
}

/**
 * A schedule from a file's text: CSV, spaces or JSON lines, see `parseActions`.
 *
 * @example
 * pipeline(model, group, { schedule: parseSchedule(readFileSync('schedule.csv', 'utf8')) })
 *
 * @throws ERR_TSR_SCHEDULE naming rank, place and reason when it is none, or impossible
 */
export function parseSchedule(text: string, name = 'custom'): Schedule {
  return customSchedule(parseActions(text), name)
}

class ActionSchedule implements Schedule {
  readonly name: string
  readonly stages: number
  readonly microbatches: number
  readonly actions: ActionLists
  readonly placement: readonly number[]

  constructor(name: string, actions: ActionLists) {
    this.name = name
    this.actions = actions
    const { stages, microbatches, rankOfStage } = extentOf(actions)
    this.stages = stages
    this.microbatches = microbatches
    this.placement = rankOfStage
  }

  validate(): void {
    validateSchedule(this.actions)
  }

  simulate(options?: SimulationOptions): Simulation {
    return simulateSchedule(this.actions, options)
  }

  grid(options?: GridOptions): string {
    return drawGrid(this.actions, options)
  }
}

function requireCount(name: string, value: number): void {
  if (!Number.isSafeInteger(value) || value < 1) {
    throw tsrError('ERR_TSR_ARGUMENT', { name, value, expected: 'a whole number from 1' })
  }
}
