/** From tensors to arrays of the host, or from arrays to tensors. */
export type CopyDirection = 'toHost' | 'toTensor'

export interface Copies {
  /** How often values of a tensor were copied from one place in memory to another. */
  readonly count: number
  readonly bytes: number
}

export type CopyCounts = Readonly<Record<CopyDirection, Copies>>

const counts = { toHost: { count: 0, bytes: 0 }, toTensor: { count: 0, bytes: 0 } }

/** Called for each copy that a bridge makes itself, or knows its backend to make. */
export function countCopy(direction: CopyDirection, bytes: number): void {
  const sum = counts[direction]
  sum.count++
  sum.bytes += bytes
}

/** The copies of memory between tensors and arrays since the start of this process. */
export function copyCounts(): CopyCounts {
  return { toHost: { ...counts.toHost }, toTensor: { ...counts.toTensor } }
}
