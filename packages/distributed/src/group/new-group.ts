import { tsrError } from '@tsrun/core'
import type { ProcessGroup } from '../process-group.ts'
import { EngineProcessGroup } from './engine-group.ts'
import { registerWorld, worldOf, type World } from './world.ts'

export interface NewGroupOptions {
  /** For errors and logs; default: the ranks. */
  readonly name?: string
  /** Default time-out of the group's operations, and of making it, in milliseconds. */
  readonly timeout?: number
}

/** How many groups of the same members each world has made so far. */
const made = new WeakMap<World, Map<string, number>>()

/**
 * Makes a group of some ranks of the world. Only the members call it, all with the same list; its
 * order is the order of ranks in the group.
 *
 * @param parent - a group of the same world; `ranks` are ranks of this group
 * @throws ERR_TSR_GROUP_MEMBERS, ERR_TSR_STORE_TIMEOUT when a member does not call it
 */
export async function newGroupOf(
  parent: ProcessGroup,
  ranks: readonly number[],
  { name, timeout }: NewGroupOptions = {},
): Promise<ProcessGroup> {
  const world = worldOf(parent)
  const members = checkMembers(parent, ranks)
  const key = members.join(',')
  const id = await agreeOnId(world, key, members[0] === world.rank, timeout ?? world.timeout)
  const group = new EngineProcessGroup(
    {
      id,
      name: name ?? `[${key}]`,
      rank: members.indexOf(world.rank),
      ranks: members,
      timeout: timeout ?? world.timeout,
    },
    world.host,
    () => Promise.resolve(),
  )
  registerWorld(group, world)
  return group
}

/** World ranks of the members. */
function checkMembers(parent: ProcessGroup, ranks: readonly number[]): number[] {
  const refuse = (problem: string): Error => tsrError('ERR_TSR_GROUP_MEMBERS', { problem })
  if (ranks.length === 0) throw refuse('the list of ranks is empty')
  if (new Set(ranks).size !== ranks.length)
    throw refuse(`a rank is named twice: ${ranks.join(', ')}`)
  const members = ranks.map((rank) => {
    const member = parent.ranks[rank]
    if (member === undefined) throw refuse(`rank ${rank} is not in group ${parent.name}`)
    return member
  })
  if (!ranks.includes(parent.rank)) {
    throw refuse(`rank ${parent.rank} calls it, but is not among ${ranks.join(', ')}`)
  }
  return members
}

/** The first member takes a number from the store and shares it with the others. */
async function agreeOnId(
  world: World,
  members: string,
  isFirst: boolean,
  timeout: number,
): Promise<number> {
  const counts = made.get(world) ?? new Map<string, number>()
  made.set(world, counts)
  const nth = counts.get(members) ?? 0
  counts.set(members, nth + 1)
  const key = `group/${members}/${nth}`
  if (isFirst) {
    const id = await world.store.add('groups', 1)
    await world.store.set(key, String(id))
    return id
  }
  return Number(new TextDecoder().decode(await world.store.get(key, { timeout })))
}
