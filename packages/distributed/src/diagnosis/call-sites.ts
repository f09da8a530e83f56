import { createLogger, host } from '@tsrun/core'
import { packageFolder } from '../package-folder.ts'

/** This package, compiled or not. */
const own = host.pathOf(packageFolder)
/** Frames of this package that may lie above a call of a group. */
const DEEPEST = 30
/** Collectives whose sites are kept. */
const KEPT = 4096
/** Differences that are logged. */
const REPORTED = 20

/** Where this package was called from: `train.ts:12:3`, relative to the current directory. */
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

/** Where the ranks called each of the last collectives; recorded under TSRUN_DEBUG=detail. */
export class CallSites {
  /** By `group/sequence`, then by world rank. */
  readonly #sites = new Map<string, Map<number, string>>()
  readonly #reported = new Set<string>()
  readonly #rank: number

  constructor(rank: number) {
    this.#rank = rank
  }

  siteOf(group: number, sequence: number, rank: number): string | undefined {
    return this.#sites.get(`${group}/${sequence}`)?.get(rank)
  }

  /** Records a site, and compares it with this rank's own. */
  set(group: number, sequence: number, rank: number, site: string): void {
    const key = `${group}/${sequence}`
    const sites = this.#sites.get(key) ?? new Map<number, string>()
    this.#sites.set(key, sites.set(rank, site))
    const [oldest] = this.#sites.keys()
    if (this.#sites.size > KEPT && oldest !== undefined) this.#sites.delete(oldest)
    const own = sites.get(this.#rank)
    if (own === undefined) return
    for (const [peer, theirs] of sites) {
      if (theirs !== own) this.#report(own, peer, theirs, sequence)
    }
  }

  /** A difference may be intended, so it is only logged, and only by the lower of the two ranks. */
  #report(own: string, peer: number, theirs: string, sequence: number): void {
    const pair = `${own} ${theirs}`
    if (peer < this.#rank || this.#reported.has(pair) || this.#reported.size >= REPORTED) return
    this.#reported.add(pair)
    createLogger('distributed').warn(
      { sequence, site: own, peer, theirs },
      `ranks call collective #${sequence} at different places: rank ${this.#rank} at ${own}, rank ${peer} at ${theirs}`,
    )
  }
}
