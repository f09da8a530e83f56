import { refuseUnknown } from '@tsrun/core'
import { checkFlag } from '../arguments.ts'
import { checkCount, checkOrder, epochOrder } from './epoch-order.ts'
import { checkShare } from './share.ts'

export interface SamplerOptions {
  /** Number of examples of the data set. */
  readonly examples: number
  /** Which of the ranks that share the examples: the data parallel coordinate. */
  readonly rank: number
  /** How many share them. */
  readonly ranks: number
  /** Default true; false keeps the order of the data set. */
  readonly shuffle?: boolean
  /** With the epoch it alone decides the order; default 0. */
  readonly seed?: number
  /**
   * Whether all ranks have equally many examples, without the last few; default false: then the first
   * ranks may have one more. No example is ever there twice, as padding would have it.
   */
  readonly dropLast?: boolean
}

const KNOWN = Object.keys({
  examples: true,
  rank: true,
  ranks: true,
  shuffle: true,
  seed: true,
  dropLast: true,
} satisfies Record<keyof SamplerOptions, true>)

/** The examples of one rank. */
export interface Sampler extends Iterable<number> {
  /** Number of this rank's examples in an epoch. */
  readonly length: number
  readonly epoch: number
  /** This rank's examples in this epoch, in order. */
  readonly indices: Int32Array
  /** Each epoch has an order of its own; 0 at first. */
  setEpoch(epoch: number): void
}

/**
 * Shares the examples of an epoch among ranks: each gets every `ranks`-th of them, and each example
 * is there once (torch's DistributedSampler repeats some where the ranks do not divide them). So batch
 * i of all ranks together is batch i of a single process, with as many times larger batches.
 *
 * @throws ERR_TSR_ARGUMENT
 *
 * @example
 * const mine = sampler({ examples: train.size, rank: mesh.dp.rank, ranks: mesh.dp.size })
 * for (let epoch = 0; epoch < 3; epoch++) {
 *   mine.setEpoch(epoch)
 *   for (const index of mine) ...
 * }
 */
export function sampler(options: SamplerOptions): Sampler {
  refuseUnknown(options, KNOWN)
  const { examples, rank, ranks, shuffle = true, seed = 0, dropLast = false } = options
  checkCount('examples', examples, 0)
  checkShare('[rank, ranks]', [rank, ranks])
  checkOrder({ seed, epoch: 0, shuffle })
  checkFlag('dropLast', dropLast)
  const whole = dropLast ? examples - (examples % ranks) : examples
  const length = Math.max(0, Math.ceil((whole - rank) / ranks))
  let epoch = 0
  let indices: Int32Array | undefined
  return {
    length,
    get epoch() {
      return epoch
    },
    get indices() {
      if (indices === undefined) {
        const order = epochOrder(examples, { seed, epoch, shuffle })
        indices = Int32Array.from({ length }, (_, i) => order[i * ranks + rank]!)
      }
      return indices
    },
    setEpoch(next) {
      checkCount('epoch', next, 0)
      if (next !== epoch) indices = undefined
      epoch = next
    },
    [Symbol.iterator]() {
      return this.indices.values()
    },
  }
}
