import { EngineProcessGroup } from './engine-group.ts'
import { registerWorld, type World } from './world.ts'

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
      await host.close()
      await world.onDestroyed?.()
    },
  )
  registerWorld(group, world)
  return group
}
