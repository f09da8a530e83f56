import { createLogger, host } from '@tsrun/core'
import { packageFolder } from '../package-folder.ts'

/** Path of this package, compiled or not. Stack frames inside it are skipped. */
const own = host.pathOf(packageFolder)
/** Number of stack frames to search for the caller of this package. */
const DEEPEST = 30
/** Number of collectives whose call sites are kept. */
const KEPT = 4096
/** Largest number of differing call sites to log. */
const REPORTED = 20

/** Returns the line that called this package, as `train.ts:12:3` relative to the current directory. */
export function callSite(): string | undefined {
  const before = Error.stackTraceLimit
  Error.stackTraceLimit = DEEPEST
  const { stack = '' } = new Error()
  Error.stackTraceLimit = before
  for (const line of stack.split('\n').slice(1)) {
    const match = /\(?((?:file:\/\/)?\/[^()]*?):(\d+):(\d+)\)?$/.exec(line)
    if (match === null) continue
    const [, place = '', row = '', column = ''] = match
    const path = place.startsWith('file:') ? host.pathOf(place) : place
    if (path.startsWith(own)) continue
    const near = host.relativePath(path)
    return `${near.startsWith('..') ? path : near}:${row}:${column}`
  }
  return undefined
}

/**
 * Records the line at which each rank called each of the last collectives. Used under
 * TSRUN_DEBUG=detail.
 */
export function recordCallSites(rank: number) {
  /** Call sites by world rank, for each collective with key `group/sequence`. */
  const all = new Map<string, Map<number, string>>()
  const reported = new Set<string>()

  /** Logs that two call sites differ, which may be intended. Only the lower of the two ranks logs. */
  const report = (own: string, peer: number, theirs: string, sequence: number): void => {
    const pair = `${own} ${theirs}`
    if (peer < rank || reported.has(pair) || reported.size >= REPORTED) return
    reported.add(pair)
    createLogger('distributed').warn(
      { sequence, site: own, peer, theirs },
      `ranks call collective #${sequence} at different places: rank ${rank} at ${own}, rank ${peer} at ${theirs}`,
    )
  }

  return {
    siteOf: (group: number, sequence: number, of: number) =>
      all.get(`${group}/${sequence}`)?.get(of),
    /** Records a rank's call site of a collective, and compares it with this rank's call site. */
    set(group: number, sequence: number, of: number, site: string): void {
      const key = `${group}/${sequence}`
      const sites = all.get(key) ?? new Map<number, string>()
      all.set(key, sites.set(of, site))
      const [oldest] = all.keys()
      if (all.size > KEPT && oldest !== undefined) all.delete(oldest)
      const mine = sites.get(rank)
      if (mine === undefined) return
      for (const [peer, theirs] of sites) {
        if (theirs !== mine) report(mine, peer, theirs, sequence)
      }
    },
  }
}
