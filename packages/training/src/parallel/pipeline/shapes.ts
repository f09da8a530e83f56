import { argumentError } from '@tsrun/core'
import type { ProcessGroup, Work } from '@tsrun/distributed'
import type { Tensor } from '../../tfjs/tfjs.ts'
import type { Microbatches } from './microbatches.ts'

/**
 * A message between neighbouring stages. A `forward` message takes an activation to the next stage.
 * A `backward` message takes its gradient to the previous stage.
 */
export interface Message {
  readonly direction: 'forward' | 'backward'
  /** The number of the stage that receives the message. */
  readonly stage: number
  readonly microbatch: number
}

/** The first message tag of shape announcements. Messages with activations use smaller tags. */
const SHAPE_TAG = 2 ** 30
/** The number of dimensions for which an announcement has room. A tensor has fewer. */
const DIMENSIONS = 8

interface Announcement {
  /** The shape of one example's activation. */
  readonly shape: readonly number[]
  /** Whether the sender wants the gradient: false if neither it nor an earlier stage has parameters. */
  readonly needsGradient: boolean
}

/**
 * The shapes of activations between neighbouring stages, without the batch axis. Gradients have the
 * same shapes.
 *
 * Shapes depend on the shape of the inputs, which the first rank broadcasts while it computes. If
 * the input shape is the same as in the previous pass, all receives are posted at once.
 */
export function createShapes(group: ProcessGroup, placement: readonly number[]) {
  const known = new Map<number, Announcement>()
  let announced: Work[] = []
  let last = ''

  return {
    /** Starts a pass. If the shape of the inputs has changed, forgets all shapes. All ranks call it. */
    async begin(batch: Microbatches) {
      const root = placement[0]!
      /** The number of dimensions of one example, then the dimensions. */
      const inputs = new Int32Array(1 + DIMENSIONS)
      if (group.rank === root) {
        const shape = batch.inputShape()
        inputs.set([shape.length, ...shape])
      }
      if (group.size > 1) {
        const told = group.broadcast(inputs, root, { label: 'shape of the inputs' })
        if (group.rank === root) announced.push(told)
        else await told
      }
      const now = inputs.join()
      if (now !== last) known.clear()
      last = now
    },

    of: ({ direction, stage }: Message) =>
      known.get(direction === 'forward' ? stage : stage + 1)?.shape,

    /** Whether the gradients of activations for `stage` are wanted. */
    needsGradient: (stage: number) => known.get(stage)?.needsGradient ?? false,

    /**
     * Waits for another rank's announcement of an activation's shape.
     * @throws ERR_TSR_ARGUMENT in a world with the transport fake
     */
    async learn({ stage }: Message) {
      const from = placement[stage - 1]!
      const announcement = await group.recvObject(from, { tag: SHAPE_TAG + stage })
      if (announcement === undefined) {
        throw argumentError(
          'group',
          'of a fake world',
          'one with other ranks, from which a later stage of a pipeline learns shapes',
        )
      }
      known.set(stage, announcement as Announcement)
    },

    /**
     * Announces the shape of an activation to the next stage, unless that stage knows it already.
     *
     * @returns whether an announcement was sent
     */
    announce({ stage }: Message, tensor: Tensor, needsGradient: boolean) {
      if (known.has(stage)) return false
      const announcement = { shape: tensor.shape.slice(1), needsGradient }
      known.set(stage, announcement)
      const to = placement[stage]!
      if (to !== group.rank) {
        announced.push(group.sendObject(announcement, to, { tag: SHAPE_TAG + stage }))
      }
      return true
    },

    async announced() {
      const works = announced
      announced = []
      for (const work of works) await work
    },
  }
}
