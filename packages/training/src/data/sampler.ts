import { count, declareOptions, flag, type Rules } from '@tsrun/core'
import { epochOrder, orderRules, shareRule } from './order.ts'

/** Options of `sampler`. */
export interface SamplerOptions {
  /** The number of examples of the data set. */
  readonly examples: number
  /** The index of this rank among the ranks that share the examples: its data parallel coordinate. */
  readonly rank: number
  /** The number of ranks that share the examples. */
  readonly ranks: number
  /** Whether to shuffle the examples; default true. */
  readonly shuffle?: boolean
  /** The seed of the order of examples; default 0. The order also depends on the epoch. */
  readonly seed?: number
  /**
   * Whether to drop the last few examples, so that all ranks have equally many; default false. If
   * false, the first ranks may have one more example. No example occurs twice.
   */
  readonly dropLast?: boolean
}

const readOptions = declareOptions({
  examples: count(),
  rank: count(),
  ranks: count({ from: 1 }),
  shuffle: orderRules.shuffle,
  seed: orderRules.seed,
  dropLast: flag.default(false),
} satisfies Rules<SamplerOptions>)

/** The examples of one rank in an epoch. */
export interface Sampler extends Iterable<number> {
  /** The number of examples of this rank in an epoch. */
  readonly length: number
  readonly epoch: number
  /** The indices of this rank's examples in this epoch, in order. */
  readonly indices: Int32Array
  /** Selects the epoch; initially 0. Each epoch has its own order. */
  setEpoch(epoch: number): void
}

/**
 * Distributes the examples of an epoch among ranks. Each rank gets every `ranks`-th example, and
 * each example occurs once. In contrast, torch's DistributedSampler repeats examples if `ranks`
 * does not divide their number. A batch of each rank together equals one batch of a single process,
 * `ranks` times as large.
 *
 * @throws ERR_TSR_ARGUMENT
 *
 * @example
 * const [rank, ranks] = run.share
 * const mine = sampler({ examples: train.size, rank, ranks })
 * for (let epoch = 0; epoch < 3; epoch++) {
 *   mine.setEpoch(epoch)
 *   for (const index of mine) ...
 * }
 */
export function sampler(options: SamplerOptions): Sampler {
  const { examples, rank, ranks, shuffle, seed, dropLast } = readOptions(options)
  shareRule.check('[rank, ranks]', [rank, ranks])
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
      orderRules.epoch.check('epoch', next)
      if (next !== epoch) indices = undefined
      epoch = next
    },
    [Symbol.iterator]() {
      return this.indices.values()
    },
  }
}
