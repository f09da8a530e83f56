import type { ProcessGroup, Work } from '@tsrun/distributed'
import type { Tensor } from '../../tfjs/tfjs.ts'
import type { Microbatches } from './microbatches.ts'

/**
 * A message between neighbouring stages: `forward` takes an activation to the next stage, `backward`
 * its gradient to the previous one.
 */
export interface Message {
  readonly direction: 'forward' | 'backward'
  /** The receiving stage. */
  readonly stage: number
  readonly microbatch: number
}

/** The first tag of announcements, sent once per stage and shape. Activations use smaller tags. */
const SHAPE_TAG = 2 ** 30
/** More dimensions than a tensor can have. */
const DIMENSIONS = 8

interface Announcement {
  /** The shape of one example. */
  readonly shape: readonly number[]
  /** Whether the gradient is wanted: false if no earlier stage has parameters. */
  readonly needsGradient: boolean
}

/**
 * The shape of one example between neighbouring stages, the same for activations and their gradients.
 *
 * The shapes depend on the shape of the inputs, which the first rank broadcasts while it computes. If
 * it has not changed since the previous pass, all receives can be posted at once.
 */
export class Shapes {
  readonly #group: ProcessGroup
  readonly #placement: readonly number[]
  /** By the stage that receives the activation. */
  readonly #known = new Map<number, Announcement>()
  #announced: Work[] = []
  /** The number of dimensions of one input example, then the dimensions. */
  readonly #inputs: Int32Array
  #last = ''

  constructor(group: ProcessGroup, placement: readonly number[]) {
    this.#group = group
    this.#placement = placement
    this.#inputs = group.alloc('int32', 1 + DIMENSIONS)
  }

  /** Starts a pass; forgets all shapes if the shape of the inputs has changed. All ranks call it. */
  async begin(batch: Microbatches): Promise<void> {
    const root = this.#placement[0]!
    if (this.#group.rank === root) {
      const shape = batch.inputShape()
      this.#inputs.fill(0).set([shape.length, ...shape])
    }
    if (this.#group.size > 1) {
      const told = this.#group.broadcast(this.#inputs, root, { label: 'shape of the inputs' })
      if (this.#group.rank === root) this.#announced.push(told)
      else await told
    }
    const now = this.#inputs.join()
    if (now !== this.#last) this.#known.clear()
    this.#last = now
  }

  of({ direction, stage }: Message): readonly number[] | undefined {
    return this.#known.get(direction === 'forward' ? stage : stage + 1)?.shape
  }

  /** Whether the gradients of the activations that go to `stage` are wanted. */
  needsGradient(stage: number): boolean {
    return this.#known.get(stage)?.needsGradient ?? false
  }

  /** Waits for the announcement of an activation that comes from another rank. */
  async learn({ stage }: Message): Promise<void> {
    const from = this.#placement[stage - 1]!
    const announcement = await this.#group.recvObject(from, { tag: SHAPE_TAG + stage })
    this.#known.set(stage, announcement as Announcement)
  }

  /** Announces an activation to the next stage, once per shape. @returns whether it was announced now */
  announce({ stage }: Message, tensor: Tensor, needsGradient: boolean): boolean {
    if (this.#known.has(stage)) return false
    const announcement = { shape: tensor.shape.slice(1), needsGradient }
    this.#known.set(stage, announcement)
    const to = this.#placement[stage]!
    if (to !== this.#group.rank) {
      this.#announced.push(this.#group.sendObject(announcement, to, { tag: SHAPE_TAG + stage }))
    }
    return true
  }

  async announced(): Promise<void> {
    const works = this.#announced
    this.#announced = []
    for (const work of works) await work
  }

  dispose(): void {
    this.#group.free(this.#inputs)
  }
}
