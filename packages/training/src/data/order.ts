import { count, flag, finite, shown, where } from '@tsrun/core'
import { generator } from '../random/generator.ts'

/** The settings that determine the order of the examples in an epoch. */
export interface EpochOrder {
  readonly seed: number
  readonly epoch: number
  /** Whether to shuffle; otherwise the order is that of the data set. */
  readonly shuffle: boolean
}

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

/**
 * Returns the numbers 0 .. length - 1 in an order that depends only on `name` and `seed` (Fisher &
 * Yates).
 */
export function permutation(length: number, name: string, seed: number): Int32Array {
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

/** Part `index` of `count` equal parts. */
export type Share = readonly [index: number, count: number]

export const shareRule = where<Share>(
  isShare,
  'an index and a count above it, as [0, 1]',
  (value) => (Array.isArray(value) ? `[${value.map(String).join(', ')}]` : shown(value)),
)

/** Returns the range of a share of `length` items. The sizes of the parts differ by at most one. */
export function endsOfShare([index, count]: Share, length: number): [from: number, to: number] {
  return [Math.floor((index * length) / count), Math.floor(((index + 1) * length) / count)]
}

function isShare(value: unknown): boolean {
  if (!Array.isArray(value)) return false
  const [index, count] = value as readonly unknown[]
  const isPair = Number.isSafeInteger(index) && Number.isSafeInteger(count)
  return isPair && Number(index) >= 0 && Number(index) < Number(count)
}
