import { tsrError } from '@tsrun/core'
import type { Store } from '@tsrun/store'
import type { EngineHost } from '../hosts/host.ts'
import type { ProcessGroup } from '../process-group.ts'

/** What all groups of one rank share. */
export interface World {
  readonly rank: number
  readonly worldSize: number
  readonly host: EngineHost
  readonly store: Store
  /** Default time-out of operations in milliseconds. */
  readonly timeout: number
}

const worlds = new WeakMap<ProcessGroup, World>()

export function registerWorld(group: ProcessGroup, world: World): void {
  worlds.set(group, world)
}

export function worldOf(group: ProcessGroup): World {
  const world = worlds.get(group)
  if (world === undefined) {
    throw tsrError('ERR_TSR_INTERNAL', { what: `group ${group.name} belongs to no world` })
  }
  return world
}
