import { argumentError, choice, count } from '@tsrun/core'
import {
  extentOf,
  formatAction,
  parseAction,
  parseActions,
  placeOf,
  scheduleError,
  type Action,
  type ActionKind,
  type ActionLists,
} from './actions.ts'
import { drawGrid, type GridOptions } from './render.ts'
import { orders, stagesPerRank } from './orders.ts'
import { simulateSchedule, type Simulation, type SimulationOptions } from './simulate.ts'

/** The name of a built-in schedule. */
export type ScheduleName = keyof typeof orders

/** The names of all built-in schedules. */
export const scheduleNames = Object.keys(orders) as ScheduleName[]

const nameRule = choice(...scheduleNames)
const countRule = count({ from: 1 })

/** Options of `schedule`. */
export interface ScheduleOptions {
  /** The number of pipeline stages, at least 1. */
  readonly stages: number
  /**
   * The number of ranks. Default: one per stage, or one per two stages for `zb-v` and `dualpipe-v`,
   * which require that. With `interleaved`, `looped` and `interleaved-zb`, stages are assigned to
   * ranks round-robin.
   */
  readonly ranks?: number
  /** The number of micro-batches of a batch, at least 1; may be less than the number of stages. */
  readonly microbatches: number
}

/**
 * The actions of each rank in a pipeline, in order, and methods that analyze them. Because it is a class,
 * only the data is copied when a schedule is sent to a worker.
 */
export class Schedule {
  readonly name: string
  readonly stages: number
  readonly microbatches: number
  readonly actions: ActionLists
  /** The rank of each stage. */
  readonly placement: readonly number[]

  constructor(name: string, actions: ActionLists) {
    const { stages, microbatches, rankOfStage } = extentOf(actions)
    this.name = name
    this.stages = stages
    this.microbatches = microbatches
    this.actions = actions
    this.placement = rankOfStage
  }

  /** @throws ERR_TSR_SCHEDULE naming the first wrong action */
  validate(): void {
    validateSchedule(this.actions)
  }

  /** Simulates the schedule, and returns the start and the end of each action. */
  simulate(options?: SimulationOptions): Simulation {
    return simulateSchedule(this.actions, options)
  }

  /** Draws the schedule with a row per rank and a column per time slot. */
  grid(options?: GridOptions): string {
    return drawGrid(this.actions, options)
  }
}

/**
 * Makes the schedule with the given name.
 *
 * @example
 * schedule('1f1b', { stages: 4, microbatches: 8 }).simulate({ forward: 1, backward: 2 }).bubble
 * // 3 / 11: (stages - 1) / (microbatches + stages - 1)
 *
 * @throws ERR_TSR_ARGUMENT for an unknown name, and for counts that are not whole numbers from 1
 */
export function schedule(
  name: ScheduleName,
  { stages, microbatches, ...options }: ScheduleOptions,
): Schedule {
  nameRule.check('schedule', name)
  const each = stagesPerRank(name)
  const ranks = options.ranks ?? (each === 2 ? Math.ceil(stages / 2) : stages)
  for (const [option, value] of Object.entries({ stages, microbatches, ranks })) {
    countRule.check(option, value)
  }
  if (each === 'any' ? stages % ranks !== 0 : stages !== ranks * each) {
    const expected = {
      any: `a multiple of the ${ranks} ranks`,
      1: `${ranks}, one per rank`,
      2: `${2 * ranks}, two per rank`,
    }
    throw argumentError('stages', stages, expected[each])
  }
  const lists = Array.from({ length: ranks }, (_, rank) =>
    orders[name](rank, ranks, microbatches, stages / ranks),
  )
  return new Schedule(name, lists)
}

/** One list of actions per rank. An action is an object or a text such as `0F3`. */
export type GivenLists = readonly (readonly (Action | string)[])[]

/**
 * Makes a schedule from custom lists of actions, one list per rank. Stages may be assigned to ranks
 * in any way.
 *
 * @example
 * customSchedule([['0F0', '0F1', '0B0', '0B1'], ['1F0', '1B0', '1F1', '1B1']])
 *
 * @throws ERR_TSR_SCHEDULE naming the rank, the index in its list and the reason when the schedule
 *   cannot be executed
 */
export function customSchedule(actions: GivenLists, name = 'custom'): Schedule {
  const read = actions.map((list, rank) =>
    list.map((action, position) => {
      const text = typeof action === 'string' ? action : formatAction(action)
      return parseAction(text, placeOf(rank, position))
    }),
  )
  validateSchedule(read)
  return new Schedule(name, read)
}

/**
 * Parses a custom schedule from text: one line per rank, with spaces or commas between the actions. See
 * `parseActions`.
 *
 * @example
 * pipeline(model, group, { schedule: parseSchedule(readFileSync('schedule.csv', 'utf8')) })
 *
 * @throws ERR_TSR_SCHEDULE naming the rank, the index in its list and the reason when the text is
 *   not a schedule or the schedule cannot be executed
 */
export function parseSchedule(text: string, name = 'custom'): Schedule {
  return customSchedule(parseActions(text), name)
}

/**
 * Checks that lists of actions form a valid schedule. Every stage must be on one rank. Each stage
 * must run the forward pass of every micro-batch once, and later its backward pass once: whole
 * (`B`), or in halves (`I`, then `W`). No rank may wait forever.
 *
 * @throws ERR_TSR_SCHEDULE naming the first wrong action, in the order of the ranks
 */
export function validateSchedule(actions: ActionLists): void {
  const { stages, microbatches, rankOfStage } = extentOf(actions)
  if (microbatches === 0) throw scheduleError('it has no actions')
  /** The kinds of the actions that have run, in order, for each stage and micro-batch. */
  const ran = new Map<string, string>()
  actions.forEach((list, rank) => {
    list.forEach((action, position) => {
      const { kind, stage, microbatch } = action
      const key = `${stage} ${microbatch}`
      const before = ran.get(key) ?? ''
      const problem =
        rankOfStage[stage] === rank
          ? problemAfter(before, kind)
          : `runs here, but stage ${stage} is on rank ${rankOfStage[stage]!}`
      if (problem !== undefined) {
        throw scheduleError(`${placeOf(rank, position)}${formatAction(action)} ${problem}`)
      }
      ran.set(key, before + kind)
    })
  })
  for (let stage = 0; stage < stages; stage++) {
    for (let microbatch = 0; microbatch < microbatches; microbatch++) {
      const [kind] = NEXT[ran.get(`${stage} ${microbatch}`) ?? '']!
      if (kind === undefined) continue
      const missing = formatAction({ kind, stage, microbatch })
      throw scheduleError(`${missing} is missing (rank ${rankOfStage[stage] ?? 'none'})`)
    }
  }
  // The simulation throws if an action can never run.
  simulateSchedule(actions)
}

/** Maps the kinds of actions that a stage has run for a micro-batch to the kinds that may follow. */
const NEXT: Readonly<Record<string, readonly ActionKind[]>> = {
  '': ['F'],
  F: ['B', 'I'],
  FB: [],
  FI: ['W'],
  FIW: [],
}

function problemAfter(ran: string, kind: ActionKind) {
  const next = NEXT[ran]!
  if (next.includes(kind)) return undefined
  if (ran === '') return 'comes before its forward pass'
  if (ran.includes(kind)) return 'runs twice'
  return `comes after ${ran}, where ${next.join(' or ') || 'nothing'} is expected`
}
