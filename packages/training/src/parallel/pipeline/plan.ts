import { argumentError } from '@tsrun/core'
import { formatActions } from './schedule/actions.ts'
import {
  customSchedule,
  schedule,
  type GivenLists,
  type Schedule,
  type ScheduleName,
} from './schedule/schedule.ts'

/** A schedule: its name, or an object with lists of actions, such as a `Schedule`. */
export type ScheduleChoice = ScheduleName | Schedule | { readonly actions: GivenLists }

/**
 * The schedules of one pipeline. There is one for each number of micro-batches, because small batches
 * have fewer.
 */
export class Plan {
  readonly #name: ScheduleName | undefined
  readonly #ranks: number
  /** The number of stages in the whole pipeline. */
  readonly stages: number
  /** The rank of each stage. */
  readonly placement: readonly number[]
  readonly #made = new Map<number, Schedule>()
  /** The number of micro-batches of a batch that has enough examples. */
  readonly microbatches: number

  /**
   * @param choice - the name of a schedule, or a schedule for the same number of ranks as the group
   * @param options - `microbatches`: default 8, or the number in the schedule; `chunks`: the number
   *   of stages per rank, for a schedule that is given by name
   * @throws ERR_TSR_ARGUMENT when the schedule does not fit the group; ERR_TSR_SCHEDULE when its
   *   actions cannot be executed
   */
  constructor(
    choice: ScheduleChoice,
    ranks: number,
    {
      microbatches,
      chunks,
    }: { readonly microbatches: number | undefined; readonly chunks: number },
  ) {
    this.#ranks = ranks
    if (typeof choice === 'string') {
      this.#name = choice
      this.stages = ranks * chunks
      this.microbatches = microbatches ?? 8
      this.placement = this.for(this.microbatches).placement
    } else {
      const own = customSchedule(choice.actions)
      checkFits(own, ranks, microbatches)
      this.stages = own.stages
      this.microbatches = own.microbatches
      this.placement = own.placement
      this.#made.set(own.microbatches, own)
    }
  }

  /** Describes the properties of the schedule that must be the same on all ranks. */
  describe(): string[] {
    const microbatches = `microbatches ${this.microbatches}`
    if (this.#name !== undefined) {
      return [`schedule ${this.#name}`, `chunks ${this.stages / this.#ranks}`, microbatches]
    }
    const lists = formatActions(this.for(this.microbatches).actions).trim().split('\n')
    const own = lists.map((list, rank) => `schedule of rank ${rank}: ${list}`)
    return ['schedule of actions', microbatches, ...own]
  }

  /**
   * Returns the schedule for a number of micro-batches.
   *
   * @throws ERR_TSR_ARGUMENT when custom lists of actions have a different number of micro-batches
   */
  for(microbatches: number): Schedule {
    const made = this.#made.get(microbatches)
    if (made !== undefined) return made
    if (this.#name === undefined) {
      throw argumentError(
        'batch.size',
        microbatches,
        `at least ${this.microbatches}, the micro-batches of the schedule`,
      )
    }
    const next = schedule(this.#name, { stages: this.stages, ranks: this.#ranks, microbatches })
    this.#made.set(microbatches, next)
    return next
  }
}

function checkFits(own: Schedule, ranks: number, microbatches: number | undefined): void {
  const lists = own.actions.filter((list) => list.length > 0).length
  if (own.actions.length !== ranks || lists !== ranks) {
    throw argumentError(
      'schedule',
      `actions for ${lists} ${lists === 1 ? 'rank' : 'ranks'}`,
      `a list for each of the ${ranks} ranks of the group`,
    )
  }
  if (microbatches === undefined || microbatches === own.microbatches) return
  throw argumentError(
    'microbatches',
    microbatches,
    `${own.microbatches}, as in the schedule, or none`,
  )
}
