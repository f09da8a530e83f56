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

/** @throws ERR_TSR_USAGE, ERR_TSR_NO_JOB */
function psText(runId: string | undefined): string {
  if (process.platform !== 'linux') throw usageError('tsrun ps needs /proc, which only Linux has')
  const jobs = findJobs()
  const wanted = runId === undefined ? jobs : jobs.filter((job) => job.runId === runId)
  if (runId !== undefined && wanted.length === 0) {
    const known = jobs.length === 0 ? 'none runs' : jobs.map((job) => job.runId).join(', ')
    throw tsrError('ERR_TSR_NO_JOB', { runId, known })
  }
  if (wanted.length === 0) return 'no job of yours runs on this host\n'
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
