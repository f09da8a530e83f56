import { choice, declareOptions, having } from '@tsrun/core'
import type { ProcessGroup, Work } from '@tsrun/distributed'
import type { Optimizer } from '../../optim/optimizer.ts'
import { freeAfter } from '../group-buffers.ts'

export interface JoinOptions {
  /** The optimizer of the loop. In the end the optimizers of all ranks have the same state. */
  readonly optimizer: Pick<Optimizer, 'state' | 'loadState' | 'learningRate'>
  /** The divisor of summed gradients: the number of ranks with data left (default), or of all ranks. */
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

/** Counts the ranks that take part in each step of a joined loop. */
export class JoinedLoop {
  readonly #group: ProcessGroup
  readonly #live: Float64Array
  #announced: Work | undefined

  constructor(group: ProcessGroup) {
    this.#group = group
    this.#live = group.alloc('float64', 1)
  }

  /** Whether this rank has announced whether it takes part in the current step. */
  get isAnnounced(): boolean {
    return this.#announced !== undefined
  }

  /** Announces whether this rank has data for the step: once, before any gradient is sent. */
  announce(hasData: boolean): void {
    if (this.#announced !== undefined) return
    this.#live[0] = hasData ? 1 : 0
    this.#announced = this.#group.allReduce(this.#live, { label: 'ranks that still have data' })
  }

  /** The number of ranks that have data for the announced step. */
  async live(): Promise<number> {
    await this.#announced
    return this.#live[0]!
  }

  /** Ends the step. */
  next(): void {
    this.#announced = undefined
  }

  dispose(): void {
    freeAfter(this.#announced, this.#group, this.#live)
  }
}
