import { isatty } from 'node:tty'
import {
  flag,
  formatBytes,
  formatRankList,
  formatSeconds,
  formatTable,
  monotonicNow,
  textWidth,
} from '@tsrun/core'
import { activityOf, type RankStatus, type StatusSnapshot } from '@tsrun/distributed/record'
import { jsonLine } from '../logs/lines.ts'
import { declareCommand } from './context.ts'
import { NO_JOB, ONE_JOB, runningJobs } from './running-jobs.ts'

/** `tsrun ps [run-id]` */
export const command = declareCommand({
  usage:
    '$0 ps [run-id] [--json]\n\nShows what each rank of the jobs that you run on this host is doing: its state and ' +
    'since when, the current operation or the last one, its size, the ranks for which ' +
    'it waits, the step and the loss.',
  argument: ONE_JOB,
  flags: { json: { reads: flag, description: 'as a JSON array of jobs, for programs' } },
  run: ({ json }, { console }, [runId]) => {
    if (json === true) console.write('stdout', jsonLine(runningJobs('ps', runId).map(toJson)))
    else console.print('stdout', psText(runId))
  },
})

/** Omits the socket, whose name includes a secret. */
function toJson(job: StatusSnapshot): object {
  const ranks = job.ranks.map((rank) => ({ ...rank, state: activityOf(rank) }))
  return { ...job, socket: undefined, ranks }
}

function psText(runId: string | undefined): string {
  const wanted = runningJobs('ps', runId)
  if (wanted.length === 0) return NO_JOB
  return wanted.map(jobText).join('\n')
}

function jobText(job: StatusSnapshot): string {
  // Do not shorten rows in a pipe, because other programs read the rows.
  const width = isatty(1) ? textWidth() : Infinity
  const table = formatTable([titles, ...job.ranks.map(toRow)], 'left', width)
  return `${[jobTitle(job), ...table].join('\n')}\n`
}

/** Describes the job in one line. */
export function jobTitle(job: StatusSnapshot): string {
  const { runId, script, launcherPid, ranks, worldSize, restartCount, abortedBy } = job
  const attempt = restartCount === 0 ? '' : `, attempt ${restartCount}`
  const ends = abortedBy === undefined ? '' : `, ends because of rank ${abortedBy}`
  return `${runId}  ${script} (tsrun ${launcherPid}, ${ranks.length} of ${worldSize} ranks here${attempt}${ends})`
}

const titles = ['rank', 'pid', 'state', 'since', 'operation', 'bytes', 'waits for', 'step', 'loss']

/**
 * Describes the activity of a rank.
 *
 * @param computing - see `activityOf`
 */
export function describeState(rank: RankStatus, computing?: number) {
  const { operation, group, sequence, running, since, waitsFor } = rank
  const state = activityOf(rank, computing)
  const more = running > 1 ? ` (and ${running - 1} more)` : ''
  return {
    state,
    /** Duration of this state. */
    time: rank.end === undefined ? formatSeconds(Math.max(0, monotonicNow() - since) / 1000) : '–',
    operation: operation === undefined ? '–' : `${operation} #${sequence} of ${group ?? ''}${more}`,
    waits: state === 'waiting' ? formatRankList(waitsFor) : '–',
  }
}

function toRow(rank: RankStatus): string[] {
  const { state, time, operation, waits } = describeState(rank)
  return [
    String(rank.rank),
    String(rank.pid),
    state,
    time,
    operation,
    rank.state === 'operation' ? formatBytes(rank.bytes) : '–',
    waits,
    rank.step === undefined ? '–' : String(rank.step),
    rank.loss === undefined ? '–' : rank.loss.toPrecision(4),
  ]
}
