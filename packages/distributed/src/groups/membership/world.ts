import { tsrError } from '@tsrun/core'
import type { Store } from '@tsrun/store'
import type { JoinOptions, NewGroupOptions } from '../../group-relations.ts'
import type { Runner } from '../../runners/runner.ts'
import type { ProcessGroup } from '../../process-group.ts'

/** What all groups of one rank share. */
export interface World {
  readonly rank: number
  readonly worldSize: number
  readonly host: Runner
  readonly store: Store
  /** Default time-out of operations in milliseconds. */
  readonly timeout: number
  /** Whether its ranks say in the store that they live; not where they share one connection to it. */
  readonly hasPresence?: boolean
  /** How often it was made anew; default 0. */
  readonly generation?: number
  /** Leaves this world and joins the next; undefined where there can be none. */
  readonly rejoin?: (options: JoinOptions) => Promise<ProcessGroup>
}

/** What groups make of each other; handed down, as groups cannot import what makes them. */
export interface GroupMakers {
  split(
    group: ProcessGroup,
    color: number | null,
    key: number,
    options: NewGroupOptions,
  ): Promise<ProcessGroup | undefined>
  shrink(group: ProcessGroup, options: NewGroupOptions): Promise<ProcessGroup>
  reconfigure(group: ProcessGroup, options: JoinOptions): Promise<ProcessGroup>
}

interface Entry {
  readonly world: World
  readonly id: number
  readonly makers: GroupMakers
}

const entries = new WeakMap<ProcessGroup, Entry>()
const ended = new WeakSet<World>()

/** This rank has left the world. */
export function endWorld(world: World): void {
  ended.add(world)
}

/** Whether this rank has left the world of a group. */
export function hasEnded(group: ProcessGroup): boolean {
  return ended.has(worldOf(group))
}

export function registerGroup(
  group: ProcessGroup,
  world: World,
  id: number,
  makers: GroupMakers,
): void {
  entries.set(group, { world, id, makers })
}

/** The world of a group, the group's id, and what makes other groups of it. */
export function entryOf(group: ProcessGroup): Entry {
  const entry = entries.get(group)
  if (entry === undefined) {
    throw tsrError('ERR_TSR_INTERNAL', { what: `group ${group.name} belongs to no world` })
  }
  return entry
}

export function worldOf(group: ProcessGroup): World {
  return entryOf(group).world
}
