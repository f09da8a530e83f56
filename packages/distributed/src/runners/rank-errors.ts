import { distanceFromCause, tsrErrorIn } from '@tsrun/core'

/** What the program of a rank has thrown. */
export interface RankError {
  readonly rank: number
  readonly error: unknown
}

/**
 * Sorts errors by cause, as the report of `tsrun` does: first errors that no other rank caused, then
 * those of a rank that left early, of waits that timed out, and of failures of other ranks. Errors of
 * one kind stay in the order in which they were thrown. If the calls of ranks differ, the rank that
 * differs from most others is the first.
 */
export function sortByCause(errors: readonly RankError[]): RankError[] {
  const odd = findOdd(errors)
  const place = ({ rank, error }: RankError): number =>
    rank === odd ? -1 : distanceFromCause(error)
  return errors.toSorted((a, b) => place(a) - place(b))
}

/** Finds the rank whose call differs from those of most other ranks, if errors tell of a mismatch. */
function findOdd(errors: readonly RankError[]): number | undefined {
  const calls = new Map<number, string>()
  let mismatches = 0
  for (const { rank, error } of errors) {
    const { code, facts = {} } = tsrErrorIn(error) ?? {}
    const { mine, theirs, peer, operation } = facts
    if (code === 'ERR_TSR_MISMATCH') {
      mismatches++
      calls.set(rank, String(mine))
      calls.set(Number(peer), String(theirs))
    } else if (operation !== undefined && !calls.has(rank)) {
      calls.set(rank, String(operation).replace(/ #\d+.*/, ''))
    }
  }
  if (mismatches === 0) return undefined
  const texts = [...calls.values()]
  const timesOf = (rank: number): number => texts.filter((text) => text === calls.get(rank)).length
  const [rarest] = [...calls.keys()].sort((a, b) => timesOf(a) - timesOf(b))
  return timesOf(rarest!) < texts.length / 2 ? rarest : undefined
}
