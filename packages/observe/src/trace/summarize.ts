import { statSync } from 'node:fs'
import { join } from 'node:path'
import { formatTable, tsrError } from '@tsrun/core'
import { parseStepRange, STEP_RANGE, TRACE_FILE } from '@tsrun/distributed/record'
import { writeChromeTrace } from './chrome-trace.ts'
import { shareOfPart, timeShares } from './shares.ts'
import { summarizeTrace, type RankSummary, type TraceSummary } from './summary.ts'
import { findTrace, type TracedRun } from './traced-run.ts'

/** The arguments of `tsrun trace`. */
export interface SummaryRequest {
  /** Paths of folders of `--trace`. */
  readonly directories: readonly string[]
  /** The folders as the user wrote them, for messages. */
  readonly names: readonly string[]
  /** The steps, in the syntax of `parseStepRange`. Default: the last steps. */
  readonly steps: string | undefined
  /** The ID of the run. Default: the newest run. */
  readonly run: string | undefined
  /** The file for Perfetto; undefined: a file in the folder, which is written only if it is outdated. */
  readonly output: string | undefined
  readonly json: boolean
  /** Receives warnings about missing input and about files that cannot be written. */
  readonly warn: (problem: string) => void
}

/** Describes how the time of a run's steps was spent. @throws ERR_TSR_USAGE */
export function summarize(request: SummaryRequest): string {
  const { directories, names, steps, output, warn } = request
  const range = steps === undefined ? undefined : parseStepRange(steps)
  if (steps !== undefined && range === undefined) {
    throw usage(`--steps is ${JSON.stringify(steps)}; expected ${STEP_RANGE}`)
  }
  const run = findTrace(directories, names, request.run)
  const file = output ?? join(directories[0]!, TRACE_FILE)
  const isWanted =
    output !== undefined ||
    (names.length === 1 && (request.run !== undefined || isStale(file, run)))
  const isWritten = isWanted && writeBeside(run, file, warn)
  for (const problem of run.problems) warn(`cannot use ${problem}`)
  const summary = summarizeTrace(run, range)
  if (summary === undefined) {
    const problem =
      range === undefined ? 'there is nothing in it' : `not all ranks have steps ${steps!}`
    throw usage(`${names.join(', ')}: ${problem}`)
  }
  if (request.json) return `${JSON.stringify(summary)}\n`
  return summaryText(summary, isWritten ? file : undefined)
}

function usage(problem: string): Error {
  return tsrError('ERR_TSR_USAGE', { problem })
}

/** Whether the file for Perfetto is missing or older than the run. */
function isStale(file: string, { files }: TracedRun) {
  const written = statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0
  return files.some(({ header }) => header.time > written)
}

/** Returns whether writing succeeded: the folder may belong to another user. */
function writeBeside(run: TracedRun, file: string, warn: SummaryRequest['warn']) {
  try {
    writeChromeTrace(run.files, file)
    return true
  } catch (error) {
    warn(`cannot write ${file}: ${(error as Error).message}`)
    return false
  }
}

function summaryText(summary: TraceSummary, file: string | undefined) {
  const { byRank, mean } = summary
  const rows = [
    ['rank', 'step', ...timeShares],
    ...byRank.map((each) => row(String(each.rank), each)),
    ...(byRank.length > 1 ? [row('all', mean)] : []),
  ]
  const lines = [
    heading(summary),
    ...(file === undefined ? [] : [`written: ${file}`]),
    '',
    ...formatTable(rows, 'right'),
    '',
    ...summarySentences(summary),
  ]
  return `${lines.join('\n')}\n`
}

function heading({ runId, ranks, hosts, attempts, steps }: TraceSummary) {
  const count = (number: number, what: string) => `${number} ${what}${number === 1 ? '' : 's'}`
  const place = `${count(ranks, 'rank')} on ${count(hosts, 'host')}`
  const last = attempts > 1 ? `, the last of ${attempts} attempts` : ''
  const mean =
    steps === undefined
      ? ''
      : steps.count === 1
        ? `; step ${steps.first}`
        : `; means of ${steps.count} steps, ${steps.first} to ${steps.last}`
  return `run ${runId}: ${place}${last}${mean}`
}

function row(name: string, { step, shares }: Pick<RankSummary, 'step' | 'shares'>) {
  return [
    name,
    durationText(step),
    ...timeShares.map((share) => percentText(step === 0 ? 0 : shares[share] / step)),
  ]
}

/** Describes a trace in sentences, as an addition to the table. */
export function summarySentences(summary: TraceSummary): string[] {
  const { steps, byRank, slowest } = summary
  return [
    `critical path: ${pathText(summary)}`,
    ...(slowest === undefined ? [] : [slowestText(slowest, byRank)]),
    ...(steps === undefined
      ? ['The program reports no steps (group.reportProgress), so this is its time as a whole.']
      : []),
  ]
}

function pathText({ criticalPath }: TraceSummary) {
  const total = criticalPath.reduce((sum, { milliseconds }) => sum + milliseconds, 0)
  if (total === 0) return 'unknown'
  const times = new Map<string, number>()
  for (const { part, milliseconds } of criticalPath) {
    const share = part === 'waiting' ? part : shareOfPart[part]
    times.set(share, (times.get(share) ?? 0) + milliseconds)
  }
  return [...times]
    .sort((a, b) => b[1] - a[1])
    .map(([share, time]) => `${share} ${percentText(time / total)}`)
    .join(', ')
}

function slowestText(slowest: number, byRank: readonly RankSummary[]) {
  const own = byRank.find(({ rank }) => rank === slowest)!
  return `slowest rank: rank ${slowest}; directly or through other ranks, the others wait ${durationText(own.causes)} of each step for it`
}

function durationText(time: number) {
  return time >= 10_000 ? `${(time / 1000).toFixed(1)} s` : `${time.toFixed(time < 100 ? 1 : 0)} ms`
}

function percentText(share: number) {
  return `${(100 * share).toFixed(1)} %`
}
