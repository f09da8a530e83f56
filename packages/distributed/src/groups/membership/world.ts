import { host, tsrError } from '@tsrun/core'
import type { Store } from '@tsrun/store'
import type { Runner } from '../../runners/runner.ts'
import type { JoinOptions, ProcessGroup } from '../../process-group.ts'

/** The facts and hooks of a joined world. */
export interface WorldFacts {
  readonly rank: number
  readonly worldSize: number
  readonly runner: Runner
  readonly store: Store
  /** Default time-out of operations in milliseconds. */
  readonly timeout: number
  /**
   * Whether each rank announces in the store that it is alive. Ranks of an in-process world, which
   * share a connection, do not.
   */
  readonly hasPresence?: boolean
  /** How often `reconfigure` has rebuilt the world; default 0. */
  readonly generation?: number
  /** Leaves this world and joins the next; undefined if that is impossible. */
  readonly rejoin?: (options: JoinOptions) => Promise<ProcessGroup>
  /** Called when the rank has left the world. */
  readonly onLeft?: () => Promise<void>
}

export type World = ReturnType<typeof createWorld>

/** Creates the state that all groups of a rank share. */
export function createWorld({ hasPresence, rejoin, onLeft, ...facts }: WorldFacts) {
  const { store } = facts
  /** How many groups were made so far, by members and name. */
  const made = new Map<string, number>()
  /** How often each group was shrunk, by group id. */
  const shrunk = new Map<number, number>()
  const world = {
    ...facts,
    generation: facts.generation ?? 0,
    /** Whether this rank has left the world. */
    hasEnded: false,
    /** Returns the number of a new group among the groups with the same members and name. */
    countGroup(group: string): number {
      const number = made.get(group) ?? 0
      made.set(group, number + 1)
      return number
    },
    /** Undoes `countGroup` after a failure, so that the next attempt has the same number. */
    uncountGroup(group: string, number: number): void {
      if (made.get(group) === number + 1) made.set(group, number)
    },
    /** Returns the store folder for the next shrink of a group. */
    shrinkFolder: (group: number) => `shrink/${group}/${shrunk.get(group) ?? 0}/`,
    countShrink(group: number): void {
      shrunk.set(group, (shrunk.get(group) ?? 0) + 1)
    },
    /** Asks the store which ranks are alive. Returns a function that looks up a rank. */
    async findPresent(): Promise<(rank: number) => boolean> {
      if (hasPresence !== true) return () => true
      const alive = new Set(await store.list(presenceFolder))
      return (rank) => alive.has(presenceKey(rank))
    },
    /**
     * Rebuilds the world, as `GroupRelations.reconfigure` documents.
     * @throws ERR_TSR_CANNOT_RECONFIGURE, and the errors of `initProcessGroup`
     */
    async reconfigure(group: string, options: JoinOptions): Promise<ProcessGroup> {
      if (rejoin === undefined) {
        const reason = 'the ranks of an in-process world cannot be started again'
        throw tsrError('ERR_TSR_CANNOT_RECONFIGURE', { group, reason })
      }
      return await rejoin(options)
    },
    async leave(): Promise<void> {
      world.hasEnded = true
      await facts.runner.close()
      await onLeft?.()
    },
  }
  return world
}

const presenceFolder = 'alive/'

export function presenceKey(rank: number): string {
  return `${presenceFolder}${rank}`
}

/** Announces in the store that this rank is alive. The store deletes the key when the connection ends. */
export async function announcePresence(store: Store, rank: number): Promise<void> {
  await store.set(presenceKey(rank), String(host.processId), { whileConnected: true })
}

export async function endPresence(store: Store, rank: number): Promise<void> {
  await store.delete(presenceKey(rank))
}
