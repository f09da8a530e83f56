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

export type Plan = ReturnType<typeof planOf>

/**
 * The schedules of one pipeline. There is one for each number of micro-batches, because small batches
 * have fewer.
 *
 * @param choice - the name of a schedule, or a schedule for the same number of ranks as the group
 * @param options - `microbatches`: default 8, or the number in the schedule; `chunks`: the number
 *   of stages per rank, for a schedule that is given by name
 * @throws ERR_TSR_ARGUMENT when the schedule does not fit the group; ERR_TSR_SCHEDULE when its
 *   actions cannot be executed
 */
export function planOf(
  choice: ScheduleChoice,
  ranks: number,
  options: { readonly microbatches: number | undefined; readonly chunks: number },
) {
  const name = typeof choice === 'string' ? choice : undefined
  const own = typeof choice === 'string' ? undefined : customSchedule(choice.actions)
  if (own !== undefined) checkFits(own, ranks, options.microbatches)
  const { stages, microbatches } = own ?? {
    stages: ranks * options.chunks,
    microbatches: options.microbatches ?? 8,
  }
  const made = new Map<number, Schedule>(own && [[microbatches, own]])
  const scheduleFor = (count: number) => {
    const known = made.get(count)
    if (known !== undefined) return known
    if (name === undefined) {
      throw argumentError(
        'batch.size',
        count,
        `at least ${microbatches}, the micro-batches of the schedule`,
      )
    }
    const next = schedule(name, { stages, ranks, microbatches: count })
    made.set(count, next)
    return next
  }
  const usual = scheduleFor(microbatches)
  return {
    /** The number of stages in the whole pipeline. */
    stages,
    /** The rank of each stage. */
    placement: usual.placement,
    /** The number of micro-batches of a batch that has enough examples. */
    microbatches,

    /** Describes the properties of the schedule that must be the same on all ranks. */
    describe() {
      const parts = `microbatches ${microbatches}`
      if (name !== undefined) return [`schedule ${name}`, `chunks ${stages / ranks}`, parts]
      const lists = formatActions(usual.actions).trim().split('\n')
      return [
        'schedule of actions',
        parts,
        ...lists.map((list, rank) => `schedule of rank ${rank}: ${list}`),
      ]
    },

    /**
     * Returns the schedule for a number of micro-batches.
     *
     * @throws ERR_TSR_ARGUMENT when custom lists of actions have a different number of micro-batches
     */
    for: scheduleFor,
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
