import { availableParallelism } from 'node:os'

/** With how many threads TensorFlow computes an operation. */
export function threadCount(): number {
  const set = Number(process.env['TF_NUM_INTRAOP_THREADS'])
  return set > 0 ? set : availableParallelism()
}
