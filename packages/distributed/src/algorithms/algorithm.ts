import type { Channel, Steps } from './channel.ts'
import type { Operation } from '../operation.ts'
import { dtypes } from '../dtype.ts'

/** A collective as a generator. It yields whenever it has to wait. */
export type Algorithm = (channel: Channel, operation: Operation) => Steps

/** The arithmetic of one operation, on byte offsets and byte lengths. */
export interface Arithmetic {
  readonly bytesPerElement: number
  /** Computes out = a op b, element by element. */
  combine(out: number, a: number, b: number, bytes: number): void
  /** Finishes a complete sum: divides it for `avg`, otherwise does nothing. */
  finish(at: number, bytes: number): void
}

/** The arithmetic of `operation`, by the kernels of `channel`. */
export function arithmeticOf(channel: Channel, operation: Operation): Arithmetic {
  const { dtype, reduction } = operation
  const { kernels, size } = channel
  const bytesPerElement = dtypes[dtype].bytes
  return {
    bytesPerElement,
    combine: (out, a, b, bytes) => {
      if (bytes > 0) kernels.combine(reduction, dtype, out, a, b, bytes / bytesPerElement)
    },
    finish: (at, bytes) => {
      if (reduction !== 'avg' || bytes === 0) return
      kernels.scale(dtype, at, bytes / bytesPerElement, 1 / size)
    },
  }
}

/**
 * Returns the other ranks in ascending order, starting after this rank and wrapping around. Each
 * rank thus starts with a different peer.
 */
export function otherRanks({ rank, size }: Pick<Channel, 'rank' | 'size'>): number[] {
  return Array.from({ length: size - 1 }, (_, i) => (rank + 1 + i) % size)
}

/**
 * Computes result = ((part 0 op part 1) op part 2) ..., where part r is from rank r. This rank's
 * part is unchanged unless it is also the result. The parts of other ranks are overwritten.
 */
export function foldInRankOrder(
  arithmetic: Arithmetic,
  { rank }: Pick<Channel, 'rank'>,
  parts: readonly number[],
  result: number,
  bytes: number,
): void {
  const scratch = parts[rank === 0 ? 1 : 0]!
  for (let peer = 1; peer < parts.length; peer++) {
    // The result may overwrite this rank's part, so read the part first.
    const sum = peer === 1 ? parts[0]! : scratch
    const out = peer === parts.length - 1 ? result : scratch
    arithmetic.combine(out, sum, parts[peer]!, bytes)
  }
}

/**
 * Copies `count` slices of `slice` bytes from `from` to `to`, and rotates them: slice `first` becomes
 * the first.
 */
export function rotate(
  { kernels }: Pick<Channel, 'kernels'>,
  to: number,
  from: number,
  slice: number,
  count: number,
  first: number,
): void {
  const rest = (count - first) * slice
  kernels.copy(to, from + first * slice, rest)
  kernels.copy(to + rest, from, first * slice)
}
