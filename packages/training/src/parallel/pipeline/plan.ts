import { tsrError } from '@tsrun/core'
import { schedule, type Schedule, type ScheduleName } from './schedule/schedule.ts'

/** The schedules of one pipeline: one for each number of micro-batches that its batches make. */
export class Plan {
  readonly #name: ScheduleName | undefined
  readonly #stages: number
  readonly #made = new Map<number, Schedule>()
  /** Micro-batches that a batch is cut into, where it has enough examples. */
  readonly microbatches: number

  /**
   * @param choice - a name, or a schedule with as many stages as the group has ranks
   * @throws ERR_TSR_ARGUMENT when it does not fit the group
   */
  constructor(choice: ScheduleName | Schedule, stages: number, microbatches: number) {
    this.#stages = stages
    if (typeof choice === 'string') {
      this.#name = choice
      this.microbatches = microbatches
      this.for(microbatches)
    } else {
      requireExecutable(choice, stages)
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
    const next = schedule(this.#name, { stages: this.#stages, microbatches })
    this.#made.set(microbatches, next)
    return next
  }
}

function requireExecutable({ name, actions }: Schedule, stages: number): void {
  const fits = actions.every((list, rank) =>
    list.every(({ kind, stage }) => stage === rank && (kind === 'F' || kind === 'B')),
  )
  if (fits && actions.length === stages) return
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'schedule',
    value: name,
    expected: `one stage a rank, stage r on rank r, for ${stages} ranks, of F and B actions`,
  })
}
