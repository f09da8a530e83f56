import { host, tsrError } from '@tsrun/core'
import type { Store } from '@tsrun/store'
import type { Runner } from '../../runners/runner.ts'
import type { JoinOptions, ProcessGroup } from '../../process-group.ts'

/** What a rank has when it has joined a world. */
export interface WorldFacts {
  readonly rank: number
  readonly worldSize: number
  readonly runner: Runner
  readonly store: Store
  /** Default time-out of operations in milliseconds. */
  readonly timeout: number
  /** Whether each rank says in the store that it is alive. Ranks that share a connection do not. */
  readonly hasPresence?: boolean
  /** How often `reconfigure` has rebuilt the world; default 0. */
  readonly generation?: number
  /** See `World.lineage`. */
  readonly lineage?: Lineage
  /** Leaves this world and joins the next; undefined where there can be none. */
  readonly rejoin?: (options: JoinOptions) => Promise<ProcessGroup>
  /** Called when the rank has left the world. */
  readonly onLeft?: () => Promise<void>
}

/** What a world shares with those that `reconfigure` makes of it. None of them holds those in between. */
export interface Lineage {
  /** The group of all ranks of the newest world; undefined while there is only the first. */
  newest: ProcessGroup | undefined
}

/** What all groups of a rank share, and what they have to remember together. */
export class World {
  readonly rank: number
  readonly worldSize: number
  readonly runner: Runner
  readonly store: Store
  readonly timeout: number
  readonly generation: number
  /** Whether this rank has left the world. */
  hasEnded = false
  readonly lineage: Lineage
  readonly #facts: WorldFacts
  /** How many groups of the same members and name this rank has made. */
  readonly #made = new Map<string, number>()
  /** How often each group was shrunk, by its id. */
  readonly #shrunk = new Map<number, number>()

  constructor(facts: WorldFacts) {
    this.#facts = facts
    this.rank = facts.rank
    this.worldSize = facts.worldSize
    this.runner = facts.runner
    this.store = facts.store
    this.timeout = facts.timeout
    this.generation = facts.generation ?? 0
    this.lineage = facts.lineage ?? { newest: undefined }
  }

  /** Numbers a group among those of the same members and name. */
  countGroup(group: string): number {
    const number = this.#made.get(group) ?? 0
    this.#made.set(group, number + 1)
    return number
  }

  /** The group was not made: the next attempt has the same number. */
  uncountGroup(group: string, number: number): void {
    if (this.#made.get(group) === number + 1) this.#made.set(group, number)
  }

  /** Every shrink of a group has a place of its own in the store. */
  shrinkFolder(group: number): string {
    return `shrink/${group}/${this.#shrunk.get(group) ?? 0}/`
  }

  countShrink(group: number): void {
    this.#shrunk.set(group, (this.#shrunk.get(group) ?? 0) + 1)
  }

  /** Finds out which ranks are alive, as far as the store knows. */
  async findPresent(): Promise<(rank: number) => boolean> {
    if (this.#facts.hasPresence !== true) return () => true
    const alive = new Set(await this.store.list(presenceFolder))
    return (rank) => alive.has(presenceKey(rank))
  }

  /** See `GroupRelations.reconfigure`. @throws ERR_TSR_CANNOT_RECONFIGURE, and as `initProcessGroup` */
  async reconfigure(group: string, options: JoinOptions): Promise<ProcessGroup> {
    const { rejoin } = this.#facts
    if (rejoin === undefined) {
      const reason = 'the ranks of an in-process world cannot be started again'
      throw tsrError('ERR_TSR_CANNOT_RECONFIGURE', { group, reason })
    }
    const newest = await rejoin(options)
    this.lineage.newest = newest
    return newest
  }

  /** Leaves the world in order. */
  async leave(): Promise<void> {
    this.hasEnded = true
    await this.runner.close()
    await this.#facts.onLeft?.()
  }
}

const presenceFolder = 'alive/'

export function presenceKey(rank: number): string {
  return `${presenceFolder}${rank}`
}

/** Says in the store that this rank is alive; the store notices when it is not any more. */
export async function announcePresence(store: Store, rank: number): Promise<void> {
  await store.set(presenceKey(rank), String(host.processId), { whileConnected: true })
}

export async function endPresence(store: Store, rank: number): Promise<void> {
  await store.delete(presenceKey(rank))
}
