import { tsrError } from '@tsrun/core'
import type { GroupRelations, JoinOptions, NewGroupOptions } from '../group-relations.ts'
import type { ProcessGroup } from '../process-group.ts'
import { entryOf } from './membership/world.ts'

/** How a group on an engine relates to the world and to other groups. */
export abstract class RelationForms implements GroupRelations {
  abstract readonly name: string
  abstract readonly rank: number
  abstract readonly size: number
  abstract readonly ranks: readonly number[]

  get generation(): number {
    return entryOf(this.#group).world.generation ?? 0
  }

  globalRank(rank: number): number {
    const found = this.ranks[rank]
    if (found === undefined) throw this.#rangeError('globalRank', rank)
    return found
  }

  groupRank(worldRank: number): number {
    const found = this.ranks.indexOf(worldRank)
    if (found < 0) throw this.#rangeError('groupRank', worldRank)
    return found
  }

  async split(
    color: number | null,
    key = this.rank,
    options: NewGroupOptions = {},
  ): Promise<ProcessGroup | undefined> {
    return await entryOf(this.#group).makers.split(this.#group, color, key, options)
  }

  async shrink(options: NewGroupOptions = {}): Promise<ProcessGroup> {
    return await entryOf(this.#group).makers.shrink(this.#group, options)
  }

  async reconfigure(options: JoinOptions = {}): Promise<ProcessGroup> {
    return await entryOf(this.#group).makers.reconfigure(this.#group, options)
  }

  /** Every class that extends this one is a group. */
  get #group(): ProcessGroup {
    return this as unknown as ProcessGroup
  }

  #rangeError(operation: string, peer: number): Error {
    const { name: group, size } = this
    return tsrError('ERR_TSR_RANK_RANGE', { operation, peer, group, size })
  }
}
