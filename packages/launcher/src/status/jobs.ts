import { readdirSync, readlinkSync, statSync } from 'node:fs'
import { readStatusPage, STATUS_NAME, type StatusSnapshot } from '@tsrun/telemetry'

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
