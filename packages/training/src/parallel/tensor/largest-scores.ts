import type { ProcessGroup } from '@tsrun/distributed'
import type { Tensor } from '@tensorflow/tfjs-core'
import { viewOf } from '../../backend/host-memory.ts'

export interface LargestScores {
  /** Of each row, among the classes of this rank. */
  readonly own: Float32Array
  /** Of each row, among all. */
  readonly overall: Float32Array
  /** The number of this rank's first class. */
  readonly offset: number
  /** How many classes there are. */
  readonly all: number
}

/**
 * The largest score of each row over the ranks, in one message with how many classes each has: not all
 * have as many where these do not divide.
 */
export function shareLargest(logits: Tensor, rows: number, group: ProcessGroup): LargestScores {
  const { rank, size } = group
  const classes = logits.size / rows
  const buffer = group.alloc('float32', rows + size)
  try {
    const scores = viewOf(logits)
    const own = Float32Array.from({ length: rows }, (_, row) => {
      let most = -Infinity
      for (let i = row * classes; i < (row + 1) * classes; i++) most = Math.max(most, scores[i]!)
      return most
    })
    buffer.fill(0)
    buffer.set(own)
    buffer[rows + rank] = classes
    group.allReduceSync(buffer, { op: 'max', label: 'largest scores' })
    const counts = buffer.slice(rows)
    const sum = (values: Float32Array) => values.reduce((total, count) => total + count, 0)
    const overall = buffer.slice(0, rows)
    return { own, overall, offset: sum(counts.subarray(0, rank)), all: sum(counts) }
  } finally {
    group.free(buffer)
  }
}
