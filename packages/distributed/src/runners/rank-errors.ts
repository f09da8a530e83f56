import { distanceFromCause } from '@tsrun/core'

/** What the program of a rank has thrown. */
export interface RankError {
  readonly rank: number
  readonly error: unknown
}

/**
 * Sorts errors by cause: first errors that no other rank caused, then those of a rank that left early,
 * of waits that timed out, and of failures of other ranks. Errors of one kind stay in the order in
 * which they were thrown.
 */
export function sortByCause(errors: readonly RankError[]): RankError[] {
  return errors.toSorted((a, b) => distanceFromCause(a.error) - distanceFromCause(b.error))
}
