import type { Channel, Steps } from './channel.ts'
import type { Operation } from '../operation.ts'
import { dtypes } from '../dtype.ts'

/** A collective written as a generator; it yields whenever it has to wait. */
export type Algorithm = (channel: Channel, operation: Operation) => Steps

/** The arithmetic of one operation, on byte offsets and byte lengths. */
export interface Arithmetic {
  readonly bytesPerElement: number
  /** out = a op b. */
  combine(out: number, a: number, b: number, bytes: number): void
  /** Turns a complete sum into what was asked for: divides for `avg`, else does nothing. */
  finish(at: number, bytes: number): void
}

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

/** The other ranks, starting with the next one, so that each rank starts with a different peer. */
export function otherRanks({ rank, size }: Pick<Channel, 'rank' | 'size'>): number[] {
  return Array.from({ length: size - 1 }, (_, i) => (rank + 1 + i) % size)
}

/**
 * result = ((part 0 op part 1) op part 2) ..., where the parts are by rank. The own part is kept,
 * unless the result goes there; those of other ranks are overwritten.
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
    // the result may be the own part, which must be read before it is written
    const sum = peer === 1 ? parts[0]! : scratch
    const out = peer === parts.length - 1 ? result : scratch
    arithmetic.combine(out, sum, parts[peer]!, bytes)
  }
}
