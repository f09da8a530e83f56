import type { Channel } from '../engine/channel.ts'
import type { Operation } from '../engine/operation.ts'
import type { Steps } from '../engine/task.ts'
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
      if (reduction === 'avg' && bytes > 0) kernels.divide(dtype, at, bytes / bytesPerElement, size)
    },
  }
}
