import type { ProcessGroup, Work } from '@tsrun/distributed'
import type { Tensor } from '../../backend/tensorflow.ts'
import type { Message } from './activations.ts'

/** Announces the shape of an activation, once a stage; activations have smaller tags. */
const SHAPE_TAG = 2 ** 30

/** The shapes of one example between neighbouring stages: what a stage sends on, its gradient has. */
export class Shapes {
  readonly #group: ProcessGroup
  readonly #placement: readonly number[]
  /** By the stage that an activation goes to. */
  readonly #known = new Map<number, readonly number[]>()
  #announced: Work[] = []

  constructor(group: ProcessGroup, placement: readonly number[]) {
    this.#group = group
    this.#placement = placement
  }

  of({ direction, stage }: Message): readonly number[] | undefined {
    return this.#known.get(direction === 'forward' ? stage : stage + 1)
  }

  /** Waits for the shape of an activation that comes from another rank. */
  async learn({ stage }: Message): Promise<void> {
    const from = this.#placement[stage - 1]!
    const shape = await this.#group.recvObject(from, { tag: SHAPE_TAG + stage })
    this.#known.set(stage, shape as readonly number[])
  }

  /** Tells the next stage, once; whether this was the time. */
  announce({ stage }: Message, tensor: Tensor): boolean {
    if (this.#known.has(stage)) return false
    const shape = tensor.shape.slice(1)
    this.#known.set(stage, shape)
    const to = this.#placement[stage]!
    this.#announced.push(this.#group.sendObject(shape, to, { tag: SHAPE_TAG + stage }))
    return true
  }

  async announced(): Promise<void> {
    const works = this.#announced
    this.#announced = []
    for (const work of works) await work
  }
}
