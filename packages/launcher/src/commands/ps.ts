import { readdirSync, readlinkSync, statSync } from 'node:fs'
import { monotonicNow, tsrError } from '@tsrun/core'
import { type RankStatus, type StatusSnapshot, readStatusPage, STATUS_NAME } from '@tsrun/telemetry'
import { formatRankList } from '../args/rank-list.ts'
import { formatSeconds } from '../report/units.ts'

const help = `tsrun ps [RUN-ID]

Shows what the ranks of all jobs do that you run on this host, or of one job: the state, since when,
the current operation (or the last), its size, the ranks that it waits for, step and loss.
`

/** The text that `tsrun ps` prints. @throws ERR_TSR_USAGE, ERR_TSR_NO_JOB */
export function psText(argv: readonly string[]): string {
  const [runId, ...more] = argv
  if (runId === '--help' || runId === '-h') return help
  if (runId?.startsWith('-') === true || more.length > 0) {
    throw tsrError('ERR_TSR_USAGE', { problem: 'tsrun ps takes one argument at most: the run id' })
  }
  if (process.platform !== 'linux') {
    throw tsrError('ERR_TSR_USAGE', { problem: 'tsrun ps needs /proc, which only Linux has' })
  }
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
  const life = restartCount === 0 ? '' : `, attempt ${restartCount}`
  const ends = abortedBy === undefined ? '' : `, ends because of rank ${abortedBy}`
  const title = `${runId}  ${script} (tsrun ${launcherPid}, ${ranks.length} of ${worldSize} ranks here${life}${ends})`
  return `${[title, ...table([titles, ...ranks.map(toRow)])].join('\n')}\n`
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
    isRunning ? sizeText(bytes) : '–',
    isRunning && waitsFor.length > 0 ? formatRankList(waitsFor) : '–',
    rank.step === undefined ? '–' : String(rank.step),
    rank.loss === undefined ? '–' : rank.loss.toPrecision(4),
  ]
}

function table(rows: readonly string[][]): string[] {
  const widths = titles.map((_, column) => Math.max(...rows.map((row) => row[column]!.length)))
  return rows.map((row) =>
    row
      .map((cell, i) => cell.padEnd(widths[i]!))
      .join('  ')
      .trimEnd(),
  )
}

function sizeText(bytes: number): string {
  const unit = bytes < 1024 ? 0 : Math.min(3, Math.floor(Math.log2(bytes) / 10))
  const value = bytes / 1024 ** unit
  return `${Number(value.toFixed(1))} ${['B', 'KiB', 'MiB', 'GiB'][unit]!}`
}

/**
 * The status pages of all jobs that this user runs on this host: they have no names, but each is an
 * open file of its launcher.
 */
export function findJobs(): StatusSnapshot[] {
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
      // ranks have it open for a moment while they start
      return page.launcherPid === pid ? [page] : []
    } catch {
      // closed meanwhile
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
