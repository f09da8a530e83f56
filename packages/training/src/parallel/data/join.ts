import { choice, declareOptions, having } from '@tsrun/core'
import type { ProcessGroup, Work } from '@tsrun/distributed'
import type { Optimizer } from '../../optim/optimizer.ts'
import { freeAfter } from '../group-buffers.ts'

/** Options of `join` of data parallel training. */
export interface JoinOptions {
  /** The optimizer that the loop uses. At the end all ranks get the same optimizer state. */
  readonly optimizer: Pick<Optimizer, 'state' | 'loadState' | 'learningRate'>
  /**
   * The divisor of the summed gradients: the number of ranks that still have data (`live`,
   * default), or of all ranks (`world`).
   */
  readonly divideBy?: 'live' | 'world'
}

/** @throws ERR_TSR_ARGUMENT */
export const readJoinOptions: (given: JoinOptions) => Required<JoinOptions> = declareOptions({
  optimizer: having<JoinOptions['optimizer']>(
    ['state', 'loadState'],
    'the optimizer of the loop, whose state ranks that run out of data need',
  ),
  divideBy: choice('live', 'world').default('live'),
})

/** Counts the ranks that still have data in each step of `DataParallel.join`. */
export class JoinedLoop {
  readonly #group: ProcessGroup
  readonly #live: Float64Array
  #announced: Work | undefined

  constructor(group: ProcessGroup) {
    this.#group = group
    this.#live = group.alloc('float64', 1)
  }

  /** Whether this rank has already called `announce` in the current step. */
  get isAnnounced(): boolean {
    return this.#announced !== undefined
  }

  /**
   * Announces whether this rank has data for the step. Only the first call per step counts, and it
   * must precede the step's gradients.
   */
  announce(hasData: boolean): void {
    if (this.#announced !== undefined) return
    this.#live[0] = hasData ? 1 : 0
    this.#announced = this.#group.allReduce(this.#live, { label: 'ranks that still have data' })
  }

  /** Waits for the announcements of all ranks. @returns the number of ranks that have data */
  async live(): Promise<number> {
    await this.#announced
    return this.#live[0]!
  }

  /** Prepares for the announcements of the next step. */
  next(): void {
    this.#announced = undefined
  }

  dispose(): void {
    freeAfter(this.#announced, this.#group, this.#live)
  }
}
