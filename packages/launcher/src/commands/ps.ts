import { readdirSync, readlinkSync, statSync } from 'node:fs'
import {
  formatBytes,
  formatRankList,
  formatSeconds,
  formatTable,
  monotonicNow,
  tsrError,
} from '@tsrun/core'
import { readStatusPage, STATUS_NAME, type RankStatus, type StatusSnapshot } from '@tsrun/telemetry'
import { usageError } from '../args/read-setting.ts'
import type { AddCommand, CommandContext } from './context.ts'

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

function psText(runId: string | undefined): string {
  const jobs = chooseJobs(runId)
  return jobs.length === 0 ? 'no job of yours runs on this host\n' : jobs.map(jobText).join('\n')
}

/** The jobs of this user on this host, or the one that is named. @throws ERR_TSR_USAGE, ERR_TSR_NO_JOB */
export function chooseJobs(runId: string | undefined): StatusSnapshot[] {
  if (process.platform !== 'linux') throw usageError('this needs /proc, which only Linux has')
  const jobs = findJobs()
  const wanted = runId === undefined ? jobs : jobs.filter((job) => job.runId === runId)
  if (runId !== undefined && wanted.length === 0) {
    const known = jobs.length === 0 ? 'none runs' : jobs.map((job) => job.runId).join(', ')
    throw tsrError('ERR_TSR_NO_JOB', { runId, known })
  }
  return wanted
}

function jobText(job: StatusSnapshot): string {
  return `${[jobTitle(job), ...formatTable([titles, ...job.ranks.map(toRow)])].join('\n')}\n`
}

/** The job in one line. */
export function jobTitle(job: StatusSnapshot): string {
  const { runId, script, launcherPid, ranks, worldSize, restartCount, abortedBy } = job
  const attempt = restartCount === 0 ? '' : `, attempt ${restartCount}`
  const ends = abortedBy === undefined ? '' : `, ends because of rank ${abortedBy}`
  return `${runId}  ${script} (tsrun ${launcherPid}, ${ranks.length} of ${worldSize} ranks here${attempt}${ends})`
}

const titles = ['rank', 'pid', 'state', 'since', 'operation', 'bytes', 'waits for', 'step', 'loss']

/** What a rank is doing, in words. */
export function describeState(rank: RankStatus): {
  readonly state: string
  readonly operation: string
  readonly waits: string
} {
  const { state, operation, group, sequence, running, waitsFor } = rank
  const isRunning = state === 'operation'
  const more = running > 1 ? ` (and ${running - 1} more)` : ''
  return {
    state: isRunning ? 'in' : state === 'computing' && operation !== undefined ? 'after' : state,
    operation: operation === undefined ? '–' : `${operation} #${sequence} of ${group ?? ''}${more}`,
    waits: isRunning && waitsFor.length > 0 ? formatRankList(waitsFor) : '–',
  }
}

function toRow(rank: RankStatus): string[] {
  const { state, operation, waits } = describeState(rank)
  return [
    String(rank.rank),
    String(rank.pid),
    state,
    formatSeconds(Math.max(0, monotonicNow() - rank.since) / 1000),
    operation,
    rank.state === 'operation' ? formatBytes(rank.bytes) : '–',
    waits,
    rank.step === undefined ? '–' : String(rank.step),
    rank.loss === undefined ? '–' : rank.loss.toPrecision(4),
  ]
}

/**
 * Reads the status pages of all jobs that this user runs on this host. The pages have no names, but
 * each is an open file of its launcher.
 */
function findJobs(): StatusSnapshot[] {
  const own = process.getuid?.()
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && ownerOf(`/proc/${name}`) === own)
    .flatMap((pid) => pagesOf(Number(pid)))
}

function pagesOf(pid: number): StatusSnapshot[] {
  const folder = `/proc/${pid}/fd`
  return namesIn(folder).flatMap((fd): StatusSnapshot[] => {
    try {
      const path = `${folder}/${fd}`
      if (!readlinkSync(path).includes(STATUS_NAME)) return []
      const page = readStatusPage(path)
      // Ranks have the page open for a moment while they start.
      return page.launcherPid === pid ? [page] : []
    } catch {
      // The file was closed in the meantime.
      return []
    }
  })
}

function namesIn(folder: string): string[] {
  try {
    return readdirSync(folder)
  } catch {
    return []
  }
}

function ownerOf(path: string): number | undefined {
  return statSync(path, { throwIfNoEntry: false })?.uid
}
