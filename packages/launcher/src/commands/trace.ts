import { statSync } from 'node:fs'
import { join, resolve } from 'node:path'
import { formatTable } from '@tsrun/core'
import {
  durationText,
  percentText,
  shareTitles,
  summarizeTrace,
  summarySentences,
  timeShares,
  type RankSummary,
  type TracedRun,
  type TraceSummary,
} from '@tsrun/telemetry'
import { parseStepRange, STEP_RANGE } from '@tsrun/distributed/record'
import { usageError } from '../args/read-setting.ts'
import { mergeTrace, TRACE_FILE } from '../watch/job-trace.ts'
import type { AddCommand, CommandContext } from './context.ts'
import { findTrace, pathsOf } from './find-trace.ts'

interface Request {
  readonly folders: readonly string[]
  readonly steps: string | undefined
  readonly run: string | undefined
  readonly output: string | undefined
  readonly json: boolean
}

/** `tsrun trace <folder..>` */
export function addTrace(context: CommandContext): AddCommand {
  return (parser) =>
    parser.command(
      'trace <folder..>',
      'say where the time of the steps of a traced job went',
      (own) =>
        own
          .usage(
            '$0 trace <folder..>\n\nSummarizes what the ranks of a job wrote with tsrun --trace DIR: where the time of a ' +
              'step goes for each rank, what its critical path consists of, and for which rank the others ' +
              `wait. If DIR/${TRACE_FILE} is not there, as after a crash of tsrun, it is written.`,
          )
          .positional('folder', {
            type: 'string',
            array: true,
            demandOption: true,
            describe: 'DIR of --trace DIR; several if each host of the job had its own',
          })
          .option('steps', {
            type: 'string',
            requiresArg: true,
            describe: `${STEP_RANGE}; by default the last ones, as many as can be looked at at once`,
          })
          .option('run', {
            type: 'string',
            requiresArg: true,
            describe: 'the run with this ID; by default the newest one',
          })
          .option('output', {
            type: 'string',
            requiresArg: true,
            describe: 'write the trace for Perfetto into this file, of all folders together',
          })
          .option('json', { type: 'boolean', default: false, describe: 'print one JSON object' })
          .version(false),
      (argv) => {
        const { folder: folders, steps, run, output, json } = argv
        showTrace({ folders, steps, run, output, json }, context)
      },
    )
}

/** @throws ERR_TSR_USAGE */
function showTrace(request: Request, { console, cwd }: CommandContext): void {
  const { folders, steps, output } = request
  const range = steps === undefined ? undefined : parseStepRange(steps)
  if (steps !== undefined && range === undefined) {
    throw usageError(`--steps is ${JSON.stringify(steps)}; expected ${STEP_RANGE}`)
  }
  const paths = pathsOf(folders, cwd)
  const run = findTrace(paths, folders, request.run)
  const file = output === undefined ? join(paths[0]!, TRACE_FILE) : resolve(cwd, output)
  const isWanted =
    output !== undefined ||
    (folders.length === 1 && (request.run !== undefined || isStale(file, run)))
  const isWritten = isWanted && writeBeside(run, file, console)
  for (const problem of run.problems) console.print('stderr', `tsrun: cannot use ${problem}\n`)
  const summary = summarizeTrace(run, range)
  if (summary === undefined) {
    const problem =
      range === undefined ? 'there is nothing in it' : `not all ranks have steps ${steps!}`
    throw usageError(`${folders.join(', ')}: ${problem}`)
  }
  if (request.json) console.print('stdout', `${JSON.stringify(summary)}\n`)
  else console.print('stdout', summaryText(summary, isWritten ? file : undefined))
}

/** Whether a file for Perfetto is not there, or of another run. */
function isStale(file: string, { files }: TracedRun): boolean {
  const written = statSync(file, { throwIfNoEntry: false })?.mtimeMs ?? 0
  return files.some(({ header }) => header.time > written)
}

/** Whether it could be written: the folder may belong to another user. */
function writeBeside(run: TracedRun, file: string, console: CommandContext['console']): boolean {
  try {
    mergeTrace(run, file)
    return true
  } catch (error) {
    console.print('stderr', `tsrun: cannot write ${file}: ${(error as Error).message}\n`)
    return false
  }
}

/** Ranks that have a row each; of more, those that compute longest. */
const MOST_ROWS = 16
function summaryText(summary: TraceSummary, file: string | undefined): string {
  const { byRank, mean } = summary
  const sorted = byRank.toSorted((a, b) => b.shares.compute - a.shares.compute)
  const isShort = byRank.length <= MOST_ROWS
  const shown = isShort ? byRank : sorted.slice(0, MOST_ROWS)
  const rows = [
    ['rank', 'step', ...timeShares.map((share) => shareTitles[share])],
    ...shown.map((each) => row(String(each.rank), each)),
    ...(byRank.length > 1 ? [row('all', mean)] : []),
  ]
  const lines = [
    ...heading(summary),
    ...(file === undefined ? [] : [`written: ${file}`]),
    '',
    ...formatTable(rows, 'right'),
    ...(isShort ? [] : [`(the ${MOST_ROWS} ranks of ${byRank.length} that compute longest)`]),
    '',
    ...summarySentences(summary),
  ]
  return `${lines.join('\n')}\n`
}

function heading({ runId, ranks, hosts, attempts, steps }: TraceSummary): string[] {
  const count = (number: number, what: string): string =>
    `${number} ${what}${number === 1 ? '' : 's'}`
  const place = `${count(ranks, 'rank')} on ${count(hosts, 'host')}`
  const last = attempts > 1 ? `, the last of ${attempts} attempts` : ''
  const mean =
    steps === undefined
      ? ''
      : steps.count === 1
        ? `; step ${steps.first}`
        : `; means of ${steps.count} steps, ${steps.first} to ${steps.last}`
  return [`run ${runId}: ${place}${last}${mean}`]
}

function row(name: string, { step, shares }: Pick<RankSummary, 'step' | 'shares'>): string[] {
  return [
    name,
    durationText(step),
    ...timeShares.map((share) => percentText(step === 0 ? 0 : shares[share] / step)),
  ]
}
