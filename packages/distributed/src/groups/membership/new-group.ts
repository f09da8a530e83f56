import { isTsrError, tsrError } from '@tsrun/core'
import type { NewGroupOptions } from '../../group-relations.ts'
import type { ProcessGroup } from '../../process-group.ts'
import { LARGEST_GROUP } from '../../operation.ts'
import { waitOptions } from '../calls/arguments.ts'
import { EngineProcessGroup } from '../group.ts'
import { entryOf, registerGroup, type World } from './world.ts'

/** How many groups of the same members and name each world has made so far. */
const calls = new WeakMap<World, Map<string, number>>()

/** What all members of a group know alike. */
export interface Membership {
  readonly id: number
  readonly name: string
  /** World ranks. */
  readonly members: readonly number[]
  readonly timeout: number
}

/**
 * Makes a group of some ranks of the world. Only the members call it, all with the same list and
 * name; its order is the order of ranks in the group. Groups of other members, or of another name,
 * may be made in any order.
 *
 * @param parent - a group of the same world; `ranks` are ranks of this group
 * @throws ERR_TSR_GROUP_MEMBERS, also when another member gave another order; ERR_TSR_TIMEOUT when
 *   the lowest rank does not call it; ERR_TSR_ABORTED
 */
export async function newGroupOf(
  parent: ProcessGroup,
  ranks: readonly number[],
  options: NewGroupOptions = {},
): Promise<ProcessGroup> {
  const { world } = entryOf(parent)
  const { timeout } = waitOptions(options, world.timeout)
  const members = checkMembers(parent, ranks)
  const name = options.name ?? `[${members.join(',')}]`
  const agreed = await agreeOnId(world, members, name, options)
  const group = openGroup(parent, { id: agreed.id, name, members, timeout })
  const order = members.join(', ')
  if (agreed.order !== order) {
    const problem = `rank ${agreed.first} made it as ${agreed.order}, but rank ${world.rank} as ${order}`
    // the others have it already: they must not wait for this rank
    world.host.failGroup(agreed.id, problem)
    await group.destroy()
    throw tsrError('ERR_TSR_GROUP_MEMBERS', { problem })
  }
  return group
}

/** Makes this rank's part of a group whose id all members know. */
export function openGroup(
  parent: ProcessGroup,
  { id, name, members, timeout }: Membership,
): ProcessGroup {
  const { world, makers } = entryOf(parent)
  const rank = members.indexOf(world.rank)
  const group = new EngineProcessGroup(
    { id, name, rank, ranks: members, timeout },
    world.host,
    () => Promise.resolve(),
  )
  registerGroup(group, world, id, makers)
  return group
}

/** A number that no group of this world has had. @throws ERR_TSR_TOO_MANY_GROUPS */
export async function takeGroupId({ store }: World): Promise<number> {
  const id = await store.add('groups', 1)
  if (id > LARGEST_GROUP) throw tsrError('ERR_TSR_TOO_MANY_GROUPS', { limit: LARGEST_GROUP })
  return id
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
  const { gone } = entryOf(parent).world.host
  const lost = members.filter((member) => gone[member] !== 0)
  if (lost.length > 0) throw refuse(`rank ${lost.join(', ')} of the world is gone`)
  return members
}

/** What the lowest rank has published about a group. */
interface Published {
  readonly id: number
  readonly order: string
  readonly first: number
}

/** The lowest rank of the members takes a number from the store and shares it with the others. */
async function agreeOnId(
  world: World,
  members: readonly number[],
  name: string,
  options: NewGroupOptions,
): Promise<Published> {
  const { store, rank } = world
  const sorted = [...members].sort((a, b) => a - b)
  const first = sorted[0]!
  const folder = `group/${sorted.join(',')}/`
  const given = options.name ?? ''
  const call = countCall(world, folder + given)
  const key = `${folder}${call}/${given}`
  if (first === rank) {
    const own = { id: await takeGroupId(world), order: members.join(', '), first }
    await store.set(key, JSON.stringify(own))
    return own
  }
  const wait = waitOptions(options, world.timeout)
  const text = await store.get(key, wait).catch(async (cause: unknown) => {
    uncountCall(world, folder + given, call)
    if (!isTsrError(cause) || cause.code !== 'ERR_TSR_STORE_TIMEOUT') throw cause
    const others = await store.list(folder)
    const made = others.map((other) => other.slice(other.indexOf('/', folder.length) + 1))
    const names = made.filter((each) => each !== '').join(', ')
    const hint = names === '' ? '' : `; of these ranks it has made ${names}`
    const what = `rank ${rank}: waiting for rank ${first} to make group ${name}${hint}`
    throw tsrError('ERR_TSR_TIMEOUT', { what, milliseconds: wait.timeout }, { cause })
  })
  return JSON.parse(new TextDecoder().decode(text)) as Published
}

/** How often this rank has made a group like this before. */
function countCall(world: World, group: string): number {
  const counts = calls.get(world) ?? new Map<string, number>()
  calls.set(world, counts)
  const before = counts.get(group) ?? 0
  counts.set(group, before + 1)
  return before
}

/** The call came to nothing: when it is made again, it is the same one. */
function uncountCall(world: World, group: string, call: number): void {
  const counts = calls.get(world)
  if (counts?.get(group) === call + 1) counts.set(group, call)
}
