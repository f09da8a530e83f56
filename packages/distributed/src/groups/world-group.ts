import { EngineProcessGroup } from './group.ts'
import { reconfigureWorld } from './membership/reconfigure.ts'
import { shrinkGroup } from './membership/shrink.ts'
import { splitGroup } from './membership/split.ts'
import { endWorld, registerGroup, type GroupMakers, type World } from './membership/world.ts'

const makers: GroupMakers = {
  split: splitGroup,
  shrink: shrinkGroup,
  reconfigure: reconfigureWorld,
}

/** Makes the group of all ranks, and remembers its world for `newGroup`. */
export function createWorldGroup(
  world: World & { onDestroyed?: () => Promise<void> },
): EngineProcessGroup {
  const { rank, worldSize, host, timeout } = world
  const ranks = Array.from({ length: worldSize }, (_, i) => i)
  const group = new EngineProcessGroup(
    { id: 0, name: 'world', rank, ranks, timeout },
    host,
    async () => {
      endWorld(world)
      await host.close()
      await world.onDestroyed?.()
    },
  )
  registerGroup(group, world, 0, makers)
  return group
}
