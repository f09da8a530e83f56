import { existsSync } from 'node:fs'
import { describeFinding, mergeFlight, readFlightFolder } from '@tsrun/telemetry'

/** Findings that explain a failure; a report has room for some. */
const kinds = ['mismatch', 'missing', 'message']
const SHOWN = 5

/** What the records of a failed life say about its cause: a sentence each. */
export function readFindings(
  directory: string | undefined,
  life: { readonly runId: string; readonly restartCount: number; readonly nodes: number },
): string[] {
  if (directory === undefined || !existsSync(directory)) return []
  // a folder that the user named may hold records of other runs
  const own = readFlightFolder(directory).dumps.filter(
    ({ header }) => header.runId === life.runId && header.restartCount === life.restartCount,
  )
  return mergeFlight(own)
    .filter(({ kind }) => kinds.includes(kind))
    .flatMap((finding) => {
      if (finding.kind !== 'missing' || life.nodes === 1) return [finding]
      // the records of other hosts' ranks are there, not lost
      return finding.missing.length === 0 ? [] : [{ ...finding, unknown: [] }]
    })
    .slice(0, SHOWN)
    .map(describeFinding)
}
