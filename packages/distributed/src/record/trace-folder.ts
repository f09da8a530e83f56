import { join } from 'node:path'

/** The name of the file for Perfetto, in the folder of `--trace`. */
export const TRACE_FILE = 'trace.json'

/** Returns the folder of a run's span files, inside the folder of `--trace`. */
export function spansFolder(directory: string, runId: string): string {
  return join(directory, 'spans', runId)
}

/**
 * The process whose spans a file holds, and the number of the file in the process's sequence, from
 * 0.
 */
interface SpanFilePlace {
  readonly restartCount: number
  readonly rank: number
  readonly pid: number
  readonly part: number
}

export function spanFileName({ restartCount, rank, pid, part }: SpanFilePlace): string {
  return `attempt-${restartCount}.rank-${rank}.${pid}${part === 0 ? '' : `.${part}`}.spans`
}

/**
 * Parses the name of a span file.
 * @returns undefined for any other name
 */
export function parseSpanFileName(name: string): SpanFilePlace | undefined {
  const match = /^attempt-(\d+)\.rank-(\d+)\.(\d+)(?:\.(\d+))?\.spans$/.exec(name)
  if (match === null) return undefined
  const [, restartCount, rank, pid, part = 0] = match
  return {
    restartCount: Number(restartCount),
    rank: Number(rank),
    pid: Number(pid),
    part: Number(part),
  }
}
