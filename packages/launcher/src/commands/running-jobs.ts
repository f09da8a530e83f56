import { readlinkSync, statSync } from 'node:fs'
import { namesIn, tsrError } from '@tsrun/core'
import { readStatusPage, STATUS_NAME, type StatusSnapshot } from '@tsrun/distributed/record'
import { usageError } from '../args/readers.ts'

/** The output of a command when no job runs. */
export const NO_JOB = 'no job of yours runs on this host\n'

/** The argument of a command about running jobs. */
export const ONE_JOB = { description: 'show only this job' }

/**
 * Returns the jobs of this user on this host, or only the job with the given run ID.
 *
 * @param command - the name of the command, for error messages
 * @throws ERR_TSR_USAGE, ERR_TSR_NO_JOB
 */
export function runningJobs(command: string, runId: string | undefined): StatusSnapshot[] {
  if (process.platform !== 'linux') {
    throw usageError(`tsrun ${command} needs /proc, which only Linux has`)
  }
  const jobs = findJobs()
  if (runId === undefined) return jobs
  const wanted = jobs.filter((job) => job.runId === runId)
  if (wanted.length > 0) return wanted
  const known = jobs.length === 0 ? 'none runs' : jobs.map((job) => job.runId).join(', ')
  throw tsrError('ERR_TSR_NO_JOB', { runId, known })
}

/** Finds status pages among the open files of launchers, because the pages have no path. */
function findJobs(): StatusSnapshot[] {
  const own = process.getuid?.()
  return namesIn('/proc')
    .filter((name) => /^\d+$/.test(name) && ownerOf(`/proc/${name}`) === own)
    .flatMap((pid) => pagesOf(Number(pid)))
}

function pagesOf(pid: number): StatusSnapshot[] {
  const folder = `/proc/${pid}/fd`
  const files = new Set<number>()
  return namesIn(folder).flatMap((fd): StatusSnapshot[] => {
    try {
      const path = `${folder}/${fd}`
      if (!readlinkSync(path).includes(STATUS_NAME)) return []
      const { ino } = statSync(path)
      // The launcher has two descriptors of its page.
      if (files.has(ino)) return []
      files.add(ino)
      const page = readStatusPage(path)
      // Skip starting ranks, which also keep the page open for a moment.
      return page.launcherPid === pid ? [page] : []
    } catch {
      // The process closed the file during the search.
      return []
    }
  })
}

function ownerOf(path: string): number | undefined {
  return statSync(path, { throwIfNoEntry: false })?.uid
}
