import { count, isTsrError, tsrError, where } from '@tsrun/core'
import { LARGEST_GROUP } from '../../operation.ts'
import type { NewGroupOptions, ProcessGroup } from '../../process-group.ts'
import { waitOptions } from '../calls/arguments.ts'
import type { GroupIdentity } from '../calls/operations.ts'
import {
  checkChoices,
  publishedGroup,
  readPublished,
  type PublishedGroup,
  type SplitChoice,
} from './published.ts'
import type { World } from './world.ts'

type Parent = Pick<ProcessGroup, 'name' | 'rank' | 'ranks'>

/**
 * Agrees with the other members on a new group. Only the members call it, all with the same list
 * and name. Groups with other members or names may be made in any order.
 *
 * @param parent - a group of the world; `ranks` are its ranks
 * @returns the identity of the group. `problem` is an error text if the members passed the ranks in
 *   different orders, which makes the group impossible.
 * @throws ERR_TSR_GROUP_MEMBERS; ERR_TSR_TIMEOUT if the lowest rank does not call it; ERR_TSR_ABORTED
 */
export async function agreeOnGroup(
  world: World,
  parent: Parent,
  ranks: readonly number[],
  options: NewGroupOptions,
): Promise<{ readonly identity: GroupIdentity; readonly problem?: string }> {
  const wait = waitOptions(options, world.timeout)
  const members = checkMembers(world, parent, ranks)
  const order = members.join(', ')
  const name = options.name ?? `[${members.join(',')}]`
  const agreed = await agreeOnId(world, members, name, options.name ?? '', wait)
  const rank = members.indexOf(world.rank)
  const identity = { id: agreed.id, name, rank, ranks: members, timeout: wait.timeout }
  if (agreed.order === order) return { identity }
  const problem = `rank ${agreed.first} made it as ${agreed.order}, but rank ${world.rank} as ${order}`
  return { identity, problem }
}

/** Returns a new group id. @throws ERR_TSR_TOO_MANY_GROUPS */
export async function takeGroupId({ store }: World): Promise<number> {
  const id = await store.add('groups', 1)
  if (id > LARGEST_GROUP) throw tsrError('ERR_TSR_TOO_MANY_GROUPS', { limit: LARGEST_GROUP })
  return id
}

/**
 * Returns an id for a group of one rank, counting down from the largest id. Low ids have slots in
 * shared memory, so they are left for larger groups.
 */
async function takeIdOfOne({ store }: World): Promise<number> {
  return LARGEST_GROUP - (await store.add('groups-of-one', 1))
}

function checkMembers({ runner }: World, parent: Parent, ranks: readonly number[]): number[] {
  const refuse = (problem: string): Error => tsrError('ERR_TSR_GROUP_MEMBERS', { problem })
  if (ranks.length === 0) throw refuse('the list of ranks is empty')
  if (new Set(ranks).size !== ranks.length) {
    throw refuse(`a rank is named twice: ${ranks.join(', ')}`)
  }
  const members = ranks.map((rank) => {
    const member = parent.ranks[rank]
    if (member === undefined) throw refuse(`rank ${rank} is not in group ${parent.name}`)
    return member
  })
  if (!ranks.includes(parent.rank)) {
    throw refuse(`rank ${parent.rank} calls it, but is not among ${ranks.join(', ')}`)
  }
  const gone = runner.gone()
  const lost = members.filter((member) => gone[member] !== 0)
  if (lost.length > 0) throw refuse(`rank ${lost.join(', ')} of the world is gone`)
  return members
}

/**
 * The lowest member takes an id from the store. The other members read that id.
 *
 * @param given - the name that the caller passed; '' if none
 */
async function agreeOnId(
  world: World,
  members: readonly number[],
  name: string,
  given: string,
  wait: ReturnType<typeof waitOptions>,
): Promise<PublishedGroup> {
  const { store, rank } = world
  const sorted = [...members].sort((a, b) => a - b)
  const first = sorted[0]!
  const folder = `group/${sorted.join(',')}/`
  const number = world.countGroup(folder + given)
  const key = `${folder}${number}/${given}`
  // In a fake world, no other rank makes the group.
  if (first === rank || world.runner.transport === 'none') {
    const take = members.length === 1 ? takeIdOfOne : takeGroupId
    const own = { id: await take(world), order: members.join(', '), first }
    await store.set(key, JSON.stringify(own))
    return own
  }
  const text = await store.get(key, wait).catch((cause: unknown) => {
    world.uncountGroup(folder + given, number)
    if (!isTsrError(cause) || cause.code !== 'ERR_TSR_STORE_TIMEOUT') throw cause
    const what = `rank ${rank}: waiting for rank ${first} to make group ${name}`
    throw tsrError('ERR_TSR_TIMEOUT', { what, milliseconds: wait.timeout }, { cause })
  })
  return readPublished(text, publishedGroup, `rank ${first}`)
}

const colorRule = where<number | null>(
  (color) => color === null || Number.isSafeInteger(color),
  'an integer, or null for no group',
)
const keyRule = count({ from: Number.MIN_SAFE_INTEGER })

/**
 * Returns the ranks with the same colour as this rank, ordered by key and then by rank. All ranks
 * of the group call it.
 *
 * @returns undefined for colour null
 * @throws ERR_TSR_ARGUMENT, and the errors of the collective
 */
export async function ranksOfColor(
  group: ProcessGroup,
  color: number | null,
  key: number,
  wait: ReturnType<typeof waitOptions>,
): Promise<number[] | undefined> {
  const own: SplitChoice = [colorRule.check('color', color), keyRule.check('key', key)]
  const all = checkChoices(await group.allGatherObject<unknown>(own, { ...wait, label: 'split' }))
  if (color === null) return undefined
  return all
    .map(([theirs, order], rank) => ({ theirs, order, rank }))
    .filter(({ theirs }) => theirs === color)
    .sort((a, b) => a.order - b.order || a.rank - b.rank)
    .map(({ rank }) => rank)
}
