import { statSync } from 'node:fs'
import { tsrError } from '@tsrun/core'
import { describeFinding, mergeFlight } from '@tsrun/telemetry'
import { formatRankList } from '../args/rank-list.ts'
import { findRecords } from '../report/flight-records.ts'

const help = `tsrun flight FOLDER

Compares what the flight recorders of all ranks hold (rank-*.jsonl): who never entered an
operation that others wait in, who runs another one, which messages wait, which ranks are slow.
Ranks write them when something fails, below --log-dir, or where TSRUN_FLIGHT_DIR says.

FOLDER holds them, or is DIR/RUN-ID/attempt_N of --log-dir DIR; DIR/RUN-ID: the last attempt that
left records; DIR: the run that wrote last.
`

/** Characters of a reason that are shown. */
const LONGEST_REASON = 160

/** The text that `tsrun flight` prints. @throws ERR_TSR_USAGE, ERR_TSR_FLIGHT_FOLDER */
export function flightText(argv: readonly string[]): string {
  const [directory, ...more] = argv
  if (directory === '--help' || directory === '-h') return help
  if (directory === undefined || directory.startsWith('-') || more.length > 0) {
    throw tsrError('ERR_TSR_USAGE', { problem: 'tsrun flight needs one argument: the folder' })
  }
  if (statSync(directory, { throwIfNoEntry: false })?.isDirectory() !== true) {
    throw tsrError('ERR_TSR_FLIGHT_FOLDER', { directory, problem: 'it is no folder' })
  }
  const found = findRecords(directory)
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
    ...(folder === directory ? [] : [`in ${folder}`]),
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
