import { tsrError } from '@tsrun/core'
import { formatActions } from './schedule/action.ts'
import {
  customSchedule,
  schedule,
  type GivenLists,
  type Schedule,
  type ScheduleName,
} from './schedule/schedule.ts'

/** A name; or lists of actions, which is what a schedule has too. */
export type ScheduleChoice = ScheduleName | Schedule | { readonly actions: GivenLists }

/** The schedules of one pipeline: one for each number of micro-batches that its batches make. */
export class Plan {
  readonly #name: ScheduleName | undefined
  readonly #ranks: number
  /** Stages of all ranks together. */
  readonly stages: number
  /** The rank that each stage lives on. */
  readonly placement: readonly number[]
  readonly #made = new Map<number, Schedule>()
  /** Micro-batches that a batch is cut into, where it has enough examples. */
  readonly microbatches: number

  /**
   * @param choice - a name, or a schedule for as many ranks as the group has
   * @param microbatches - by default 8, or those of the schedule
   * @param chunks - stages of each rank, for a schedule by name
   * @throws ERR_TSR_ARGUMENT when it does not fit the group; ERR_TSR_SCHEDULE when it is impossible
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
      requireRanks(own, ranks)
      requireMicrobatches(own, microbatches)
      this.stages = own.stages
      this.microbatches = own.microbatches
      this.placement = own.placement
      this.#made.set(own.microbatches, own)
    }
  }

  /** What is the same on all ranks, in words. */
  describe(): string[] {
    const microbatches = `microbatches ${this.microbatches}`
    if (this.#name !== undefined) {
      return [`schedule ${this.#name}`, `chunks ${this.stages / this.#ranks}`, microbatches]
    }
    const lists = formatActions(this.for(this.microbatches).actions).trim().split('\n')
    const own = lists.map((list, rank) => `schedule of rank ${rank}: ${list}`)
    return ['schedule of actions', microbatches, ...own]
  }

  /** @throws ERR_TSR_ARGUMENT when the pipeline's own schedule has another number of micro-batches */
  for(microbatches: number): Schedule {
    const made = this.#made.get(microbatches)
    if (made !== undefined) return made
    if (this.#name === undefined) {
      throw tsrError('ERR_TSR_ARGUMENT', {
        name: 'batch.size',
        value: microbatches,
        expected: `at least ${this.microbatches}, the micro-batches of the schedule`,
      })
    }
    const next = schedule(this.#name, { stages: this.stages, ranks: this.#ranks, microbatches })
    this.#made.set(microbatches, next)
    return next
  }
}

function requireMicrobatches(own: Schedule, microbatches: number | undefined): void {
  if (microbatches === undefined || microbatches === own.microbatches) return
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'microbatches',
    value: microbatches,
    expected: `${own.microbatches}, as the schedule has, or none`,
  })
}

function requireRanks({ actions }: Schedule, ranks: number): void {
  if (actions.length === ranks && actions.every((list) => list.length > 0)) return
  const lists = actions.filter((list) => list.length > 0).length
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'schedule',
    value: `actions for ${lists} ${lists === 1 ? 'rank' : 'ranks'}`,
    expected: `a list for each of the ${ranks} ranks of the group`,
  })
}
