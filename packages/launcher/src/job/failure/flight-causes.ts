import type { FlightDump } from '@tsrun/distributed/record'
import type { FlightFinding } from './flight-findings.ts'
import { mergeFlight } from './flight-merge.ts'

/** Kinds of findings that explain a failure. */
const kinds = ['mismatch', 'missing', 'message']
const SHOWN = 5

/**
 * The possible causes that the records of a failed attempt show.
 *
 * @param known - ranks of the hosts that have reported; a record of any other rank is not missing
 */
export function findCauses(
  dumps: readonly FlightDump[],
  known: readonly number[],
): FlightFinding[] {
  return mergeFlight(dumps)
    .filter(({ kind }) => kinds.includes(kind))
    .flatMap((finding): FlightFinding[] => {
      if (finding.kind !== 'missing') return [finding]
      const unknown = finding.unknown.filter((rank) => known.includes(rank))
      return finding.missing.length + unknown.length === 0 ? [] : [{ ...finding, unknown }]
    })
    .slice(0, SHOWN)
}
