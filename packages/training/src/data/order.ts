import {
  argumentError,
  count,
  declareOptions,
  finite,
  flag,
  list,
  shown,
  where,
  type Rules,
} from '@tsrun/core'
import { generator } from '../random/generator.ts'
import type { Examples, Field } from './examples.ts'

/** The settings that determine the order of the examples in an epoch. */
export interface EpochOrder {
  readonly seed: number
  readonly epoch: number
  /** Whether to shuffle; otherwise the examples keep the order of the data set. */
  readonly shuffle: boolean
}

/** The rules of the options of `epochOrder`. */
export const orderRules = {
  // A seed may be a fraction, because its decimal digits are hashed.
  seed: finite().default(0),
  epoch: count().default(0),
  shuffle: flag.default(true),
}

/** Returns the examples 0 .. length - 1 in the order of an epoch. The order is the same on every rank. */
export function epochOrder(length: number, { seed, epoch, shuffle }: EpochOrder): Int32Array {
  return shuffle
    ? permutation(length, `epoch ${epoch}`, seed)
    : Int32Array.from({ length }, (_, i) => i)
}

/** Returns 0 .. length - 1 in an order that depends only on `name` and `seed` (Fisher & Yates). */
function permutation(length: number, name: string, seed: number): Int32Array {
  const next = generator(name, seed)
  const order = Int32Array.from({ length }, (_, i) => i)
  for (let i = length - 1; i > 0; i--) {
    // The remainder is biased by less than length / 2^32.
    const j = next() % (i + 1)
    const swapped = order[i]!
    order[i] = order[j]!
    order[j] = swapped
  }
  return order
}

/** The part with the number `index` (from 0) of `count` equal parts. */
export type Share = readonly [index: number, count: number]

const counts = list(count())

/** The rule of an option `share`. */
export const shareRule = where<Share>(
  (value) => counts.is(value) && value.length === 2 && value[0]! < value[1]!,
  'an index and a count above it, as [0, 1]',
  (value) => (Array.isArray(value) ? `[${value.map(String).join(', ')}]` : shown(value)),
)

/** Returns the range of a share of `length` items. The sizes of the parts differ by at most one. */
export function endsOfShare([index, count]: Share, length: number): [from: number, to: number] {
  return [Math.floor((index * length) / count), Math.floor(((index + 1) * length) / count)]
}

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

const readSamplerOptions = declareOptions({
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
 * does not divide their number. Together, the batches of all ranks equal one batch of a single
 * process with a batch size `ranks` times as large.
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
  const { examples, rank, ranks, shuffle, seed, dropLast } = readSamplerOptions(options)
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

/**
 * Returns the examples of a data set at `indices`, in that order, without copying them.
 *
 * @example
 * const few = subset(mnist({ split: 'train' }), [0, 1, 2])
 *
 * @throws ERR_TSR_ARGUMENT for an index that the data set does not have
 */
export function subset<D extends Examples>(data: D, indices: ArrayLike<number>): D {
  const rule = count({ to: data.size - 1 })
  const chosen = Int32Array.from(indices, (index) => rule.check('an index of the subset', index))
  const place = (rows: Int32Array) => rows.map((row) => chosen[row]!)
  const fields = Object.entries(data.fields).map(([name, field]): [string, Field] => {
    const read: Field['read'] = (rows, out) => {
      field.read(place(rows), out)
    }
    return [name, { ...field, read }]
  })
  const { paths } = data as { readonly paths?: readonly string[] }
  return {
    ...data,
    size: chosen.length,
    fields: Object.fromEntries(fields),
    ...(paths !== undefined && { paths: Array.from(chosen, (index) => paths[index]!) }),
  }
}

const readSplitOptions = declareOptions({ seed: orderRules.seed })

/**
 * Splits the examples of a data set at random, for example into training and evaluation data.
 * Examples are not copied. Every example is in at most one part. The same `seed` (default 0) gives the
 * same parts on all ranks and in each run.
 *
 * @param fractions - the fraction of the examples in each part; their sum is at most 1
 *
 * @example
 * const [train, test] = randomSplit(await imageFolder('photos', { size: [64, 64] }), [0.8, 0.2])
 * await run.fit(train, { batch: 32, evaluate: { data: test } })
 *
 * @throws ERR_TSR_ARGUMENT
 */
export function randomSplit<D extends Examples, const F extends readonly number[]>(
  data: D,
  fractions: F,
  options: { readonly seed?: number } = {},
): { -readonly [K in keyof F]: D } {
  const { seed } = readSplitOptions(options)
  let sum = 0
  const ends = fractions.map((fraction) => Math.round((sum += fraction) * data.size))
  if (sum > 1 + 1e-9 || !fractions.every((fraction) => fraction >= 0)) {
    throw argumentError(
      'fractions',
      shown(fractions),
      'fractions of the examples, in all at most 1',
    )
  }
  const order = permutation(data.size, 'split', seed)
  return ends.map((end, part) =>
    subset(data, order.subarray(part === 0 ? 0 : ends[part - 1], end)),
  ) as {
    -readonly [K in keyof F]: D
  }
}
