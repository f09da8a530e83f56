import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import { SpanRecorder, spansFolder, type Span } from '@tsrun/distributed/record'
import {
  openSpanFile,
  sendSpansTo,
  type SpanFileOwner,
} from '../../internals/distributed/record.ts'

export const RUN = '20260102-030405-abcdef'

/** Writes the spans of a rank as it would itself. @returns the path */
export function writeSpans(
  directory: string,
  spans: readonly Span[],
  owner: Partial<SpanFileOwner> = {},
): string {
  const rank = owner.rank ?? spans[0]?.rank ?? 0
  const whole: SpanFileOwner = {
    ...{ runId: RUN, restartCount: 0, rank, worldSize: 2, node: 0, host: 'one', pid: 100 + rank },
    ...{ monotonic: 0, time: 1_750_000_000_000 },
    ...owner,
  }
  const folder = spansFolder(directory, whole.runId)
  mkdirSync(folder, { recursive: true })
  const path = join(folder, `attempt-${whole.restartCount}.rank-${rank}.${whole.pid}.spans`)
  const file = openSpanFile(path, whole, (error) => {
    throw error
  })
  sendSpansTo(file)
  const recorder = new SpanRecorder({ rank })
  for (const { kind, start, end, ...facts } of spans) recorder.record(kind, start, end, facts)
  sendSpansTo(undefined)
  file.flush()
  file.close()
  return path
}
