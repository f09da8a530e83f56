import { createLogger } from '@tsrun/core'

/** Collectives whose sites are kept. */
const KEPT = 4096
/** Differences that are told. */
const TOLD = 20

/** Where the ranks called each collective; recorded under TSRUN_DEBUG=detail. */
export class Sites {
  /** By `group/sequence`, then by world rank. */
  readonly #sites = new Map<string, Map<number, string>>()
  readonly #told = new Set<string>()
  readonly #rank: number

  constructor(rank: number) {
    this.#rank = rank
  }

  siteOf(group: number, sequence: number, rank: number): string | undefined {
    return this.#sites.get(`${group}/${sequence}`)?.get(rank)
  }

  /** Takes a site in, and compares it with this rank's own. */
  set(group: number, sequence: number, rank: number, site: string): void {
    const key = `${group}/${sequence}`
    const sites = this.#sites.get(key) ?? new Map<number, string>()
    this.#sites.set(key, sites.set(rank, site))
    const [oldest] = this.#sites.keys()
    if (this.#sites.size > KEPT && oldest !== undefined) this.#sites.delete(oldest)
    const own = sites.get(this.#rank)
    if (own === undefined) return
    for (const [peer, theirs] of sites) if (theirs !== own) this.#tell(own, peer, theirs, sequence)
  }

  /** It may be meant, so it is no error. Both ranks would say the same: the lower one does. */
  #tell(own: string, peer: number, theirs: string, sequence: number): void {
    const pair = `${own} ${theirs}`
    if (peer < this.#rank || this.#told.has(pair) || this.#told.size >= TOLD) return
    this.#told.add(pair)
    createLogger('distributed').warn(
      { sequence, site: own, peer, theirs },
      `ranks call collective #${sequence} at different places: rank ${this.#rank} at ${own}, rank ${peer} at ${theirs}`,
    )
  }
}
