import { tsrError } from '@tsrun/core'
import type { JoinOptions } from '../../group-relations.ts'
import type { ProcessGroup } from '../../process-group.ts'
import { worldOf, type World } from './world.ts'

/** The world that came after each that was made anew. */
const successors = new WeakMap<World, ProcessGroup>()

/** See `GroupRelations.reconfigure`. @throws ERR_TSR_CANNOT_RECONFIGURE, and as `initProcessGroup` */
export async function reconfigureWorld(
  group: ProcessGroup,
  options: JoinOptions,
): Promise<ProcessGroup> {
  const world = worldOf(group)
  if (world.rejoin === undefined) {
    const reason = 'the ranks of an in-process world cannot be started again'
    throw tsrError('ERR_TSR_CANNOT_RECONFIGURE', { group: group.name, reason })
  }
  const next = await world.rejoin(options)
  successors.set(world, next)
  return next
}

/** The group of all ranks of the newest world that came of this group's; itself at first. */
export function newestOf(group: ProcessGroup): ProcessGroup {
  const next = successors.get(worldOf(group))
  return next === undefined ? group : newestOf(next)
}
