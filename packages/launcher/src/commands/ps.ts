import { formatBytes, formatRankList, formatSeconds, formatTable, monotonicNow } from '@tsrun/core'
import type { RankStatus, StatusSnapshot } from '@tsrun/telemetry'
import type { AddCommand, CommandContext } from './context.ts'
import { NO_JOB, runningJobs } from './running-jobs.ts'

/** `tsrun ps [run-id]` */
export function addPs({ console }: CommandContext): AddCommand {
  return (parser) =>
    parser.command(
      'ps [run-id]',
      'show what the ranks of the jobs on this host are doing',
      (own) =>
        own
          .usage(
            '$0 ps [run-id]\n\nShows what each rank of the jobs that you run on this host is doing: its state and ' +
              'since when, the current operation or the last one, its size, the ranks for which ' +
              'it waits, the step and the loss.',
          )
          .positional('run-id', { type: 'string', describe: 'show only this job' })
          .version(false),
      (argv) => {
        console.write('stdout', psText(argv['run-id']))
      },
    )
}

/** @throws ERR_TSR_USAGE, ERR_TSR_NO_JOB */
function psText(runId: string | undefined): string {
  const wanted = runningJobs('ps', runId)
  if (wanted.length === 0) return NO_JOB
  return wanted.map(jobText).join('\n')
}

function jobText(job: StatusSnapshot): string {
  const { runId, script, launcherPid, ranks, worldSize, restartCount, abortedBy } = job
  const attempt = restartCount === 0 ? '' : `, attempt ${restartCount}`
  const ends = abortedBy === undefined ? '' : `, ends because of rank ${abortedBy}`
  const title = `${runId}  ${script} (tsrun ${launcherPid}, ${ranks.length} of ${worldSize} ranks here${attempt}${ends})`
  return `${[title, ...formatTable([titles, ...ranks.map(toRow)])].join('\n')}\n`
}

const titles = ['rank', 'pid', 'state', 'since', 'operation', 'bytes', 'waits for', 'step', 'loss']

function toRow(rank: RankStatus): string[] {
  const { pid, state, since, operation, group, sequence, bytes, running, waitsFor } = rank
  const isRunning = state === 'operation'
  const more = running > 1 ? ` (and ${running - 1} more)` : ''
  const name = `${operation ?? ''} #${sequence} of ${group ?? ''}${more}`
  return [
    String(rank.rank),
    String(pid),
    isRunning ? 'in' : state === 'computing' && operation !== undefined ? 'after' : state,
    formatSeconds(Math.max(0, monotonicNow() - since) / 1000),
    operation === undefined ? '–' : name,
    isRunning ? formatBytes(bytes) : '–',
    isRunning && waitsFor.length > 0 ? formatRankList(waitsFor) : '–',
    rank.step === undefined ? '–' : String(rank.step),
    rank.loss === undefined ? '–' : rank.loss.toPrecision(4),
  ]
}
