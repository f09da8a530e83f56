import { statSync } from 'node:fs'
import { resolve } from 'node:path'
import { formatRankList, tsrError } from '@tsrun/core'
import { describeFinding } from '../job/failure/flight-findings.ts'
import { mergeFlight } from '../job/failure/flight-merge.ts'
import { findRecords } from '../job/failure/flight-records.ts'
import { declareCommand } from './context.ts'

export const command = declareCommand({
  usage:
    '$0 flight <folder>\n\nCompares what the flight recorders of all ranks hold (rank-*.jsonl): which rank ' +
    'never entered an operation in which others wait, which one runs a different ' +
    'operation, which messages are waiting. Ranks write these files ' +
    'when something fails, below --log-dir or in the folder that TSRUN_FLIGHT_DIR names.',
  argument: {
    description:
      'the folder with the records; of --log-dir DIR also DIR/RUN-ID/attempt_N, DIR/RUN-ID or DIR, ' +
      'which stand for the records that were written last',
  },
  flags: {},
  run: (_, { console, cwd }, [folder]) => {
    console.print('stdout', flightText(folder!, cwd))
  },
})

const LONGEST_REASON = 160

function flightText(directory: string, cwd: string): string {
  const path = resolve(cwd, directory)
  if (statSync(path, { throwIfNoEntry: false })?.isDirectory() !== true) {
    throw tsrError('ERR_TSR_FLIGHT_FOLDER', { directory, problem: 'it is not a folder' })
  }
  const found = findRecords(path)
  if (found === undefined || found.dumps.length === 0) {
    const problem = found?.problems[0] ?? 'there is no rank-<rank>.jsonl in it'
    throw tsrError('ERR_TSR_FLIGHT_FOLDER', { directory, problem })
  }
  const { folder, dumps, problems, notes } = found
  const [{ header }] = dumps as [(typeof dumps)[0], ...typeof dumps]
  const ranks = dumps.map((dump) => dump.header.rank)
  const absent = Array.from({ length: header.worldSize }, (_, rank) => rank).filter(
    (rank) => !ranks.includes(rank),
  )
  const findings = mergeFlight(dumps)
  const lines = [
    `run ${header.runId}, attempt ${header.restartCount}: records of ${ranks.length} of ${header.worldSize} ranks`,
    ...(folder === path ? [] : [`in ${folder}`]),
    ...notes,
    ...(absent.length === 0 ? [] : [`no record of rank ${formatRankList(absent)}`]),
    ...problems.map((problem) => `cannot use ${problem}`),
    ...dumps.map((dump) => `rank ${dump.header.rank} wrote: ${shorten(dump.header.reason)}`),
    '',
    ...findings.map(describeFinding),
    ...(findings.length === 0
      ? ['all operations that were called have ended, in the same order']
      : []),
  ]
  return `${lines.join('\n')}\n`
}

function shorten(reason: string): string {
  return reason.length <= LONGEST_REASON ? reason : `${reason.slice(0, LONGEST_REASON - 2)} …`
}
