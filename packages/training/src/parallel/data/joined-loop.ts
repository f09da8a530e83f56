import { tsrError } from '@tsrun/core'
import type { ProcessGroup, Work } from '@tsrun/distributed'
import { checkChoice } from '../../arguments.ts'
import type { Optimizer } from '../../optim/optimizer.ts'
import { freeAfter } from '../lent-buffers.ts'

export interface JoinOptions {
  /** What the loop steps: in the end that of every rank has the state and the learning rate of one. */
  readonly optimizer: Pick<Optimizer, 'state' | 'loadState' | 'learningRate'>
  /** What gradients are divided by: the ranks that still have data (default), or all. */
  readonly divideBy?: 'live' | 'world'
}

/** @throws ERR_TSR_ARGUMENT */
export function checkJoin(options: JoinOptions): Required<JoinOptions> {
  const { optimizer, divideBy = 'live' } = (options as Partial<JoinOptions> | undefined) ?? {}
  checkChoice('divideBy', divideBy, ['live', 'world'])
  if (typeof optimizer?.state === 'function') return { optimizer, divideBy }
  throw tsrError('ERR_TSR_ARGUMENT', {
    name: 'optimizer',
    value: typeof optimizer,
    expected: 'the optimizer that the loop steps: ranks without data do not, and need its state',
  })
}

/** How many ranks take part in each step of a joined loop. */
export class JoinedLoop {
  readonly #group: ProcessGroup
  readonly #live: Float64Array
  #announced: Work | undefined

  constructor(group: ProcessGroup) {
    this.#group = group
    this.#live = group.alloc('float64', 1)
  }

  /** Whether this rank has said that it takes part in the step. */
  get isAnnounced(): boolean {
    return this.#announced !== undefined
  }

  /** Says, once in a step and before anything else travels, whether this rank has data for it. */
  announce(hasData: boolean): void {
    if (this.#announced !== undefined) return
    this.#live[0] = hasData ? 1 : 0
    this.#announced = this.#group.allReduce(this.#live, { label: 'ranks that still have data' })
  }

  /** The ranks that have data for the step that was announced. */
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
