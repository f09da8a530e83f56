import { isTsrError, tsrError } from '@tsrun/core'
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
const calls = new WeakMap<World, Map<string, number>>()

/**
 * Makes a group of some ranks of the world. Only the members call it, all with the same list; its
 * order is the order of ranks in the group.
 *
 * @param parent - a group of the same world; `ranks` are ranks of this group
 * @throws ERR_TSR_GROUP_MEMBERS, also when another member gave another order; ERR_TSR_TIMEOUT when
 *   the lowest rank does not call it
 */
export async function newGroupOf(
  parent: ProcessGroup,
  ranks: readonly number[],
  { name, timeout }: NewGroupOptions = {},
): Promise<ProcessGroup> {
  const world = worldOf(parent)
  const members = checkMembers(parent, ranks)
  const label = name ?? `[${members.join(',')}]`
  const id = await agreeOnId(world, members, label, timeout ?? world.timeout)
  const group = new EngineProcessGroup(
    {
      id,
      name: label,
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

/** The lowest rank of the members takes a number from the store and shares it with the others. */
async function agreeOnId(
  world: World,
  members: readonly number[],
  name: string,
  timeout: number,
): Promise<number> {
  const order = members.join(', ')
  const sorted = [...members].sort((a, b) => a - b)
  const [first] = sorted
  const key = `group/${sorted.join(',')}/${countCall(world, sorted.join(','))}`
  if (first === world.rank) {
    const id = await world.store.add('groups', 1)
    await world.store.set(key, JSON.stringify({ id, order }))
    return id
  }
  const text = await world.store.get(key, { timeout }).catch((cause: unknown) => {
    if (!isTsrError(cause) || cause.code !== 'ERR_TSR_STORE_TIMEOUT') throw cause
    const what = `rank ${world.rank}: waiting for rank ${first} to make group ${name}`
    throw tsrError('ERR_TSR_TIMEOUT', { what, milliseconds: timeout }, { cause })
  })
  const made = JSON.parse(new TextDecoder().decode(text)) as { id: number; order: string }
  if (made.order !== order) {
    const problem = `rank ${first} made it as ${made.order}, but rank ${world.rank} as ${order}`
    throw tsrError('ERR_TSR_GROUP_MEMBERS', { problem })
  }
  return made.id
}

/** How often this rank has made a group of these members before. */
function countCall(world: World, members: string): number {
  const counts = calls.get(world) ?? new Map<string, number>()
  calls.set(world, counts)
  const before = counts.get(members) ?? 0
  counts.set(members, before + 1)
  return before
}
