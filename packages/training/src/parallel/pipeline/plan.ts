import { tsrError } from '@tsrun/core'
import { schedule, type Schedule, type ScheduleName } from './schedule/schedule.ts'

/** The schedules of one pipeline: one for each number of micro-batches that its batches make. */
export class Plan {
  readonly #name: ScheduleName | undefined
  readonly #ranks: number
  /** Stages of all ranks together. */
  readonly stages: number
  readonly #made = new Map<number, Schedule>()
  /** Micro-batches that a batch is cut into, where it has enough examples. */
  readonly microbatches: number

  /**
   * @param choice - a name, or a schedule for as many ranks as the group has
   * @param chunks - stages of each rank, for a schedule by name
   * @throws ERR_TSR_ARGUMENT when it does not fit the group
   */
  constructor(
    choice: ScheduleName | Schedule,
    ranks: number,
    { microbatches, chunks }: { readonly microbatches: number; readonly chunks: number },
  ) {
    this.#ranks = ranks
    this.stages = typeof choice === 'string' ? ranks * chunks : choice.stages
    if (typeof choice === 'string') {
      this.#name = choice
      this.microbatches = microbatches
      this.for(microbatches)
    } else {
      requireExecutable(choice, ranks)
      this.microbatches = choice.microbatches
      this.#made.set(choice.microbatches, choice)
    }
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

function requireExecutable({ name, actions }: Schedule, ranks: number): void {
  const fits = actions.every((list, rank) => list.every(({ stage }) => stage % ranks === rank))
  if (fits && actions.length === ranks) return
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'schedule',
    value: name,
    expected: `actions of stages dealt to ${ranks} ranks in turn: stage s on rank s modulo ${ranks}`,
  })
}
