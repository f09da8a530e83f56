import { Deadline, isTsrError, tsrError } from '@tsrun/core'
import type { Store } from '@tsrun/store'
import type { NewGroupOptions } from '../../group-relations.ts'
import type { ProcessGroup } from '../../process-group.ts'
import { waitOptions } from '../calls/arguments.ts'
import { openGroup, takeGroupId } from './new-group.ts'
import { present } from './presence.ts'
import { survivorsOf, type Vote } from './survivors.ts'
import { entryOf, type World } from './world.ts'

/** Milliseconds between two looks at who has come and who is gone. */
const LOOK = 25

/** What all ranks go by: the first decision that reached the store. */
interface Decision {
  readonly id: number
  /** World ranks, in the order of the old group. */
  readonly survivors: readonly number[]
}

/** How often each group was shrunk: every shrink has its own place in the store. */
const rounds = new WeakMap<ProcessGroup, number>()

/**
 * See `GroupRelations.shrink`. The store keeps one log of votes and one decision for each shrink.
 * A rank votes when it comes, naming those it has lost sight of, and votes again when it loses more.
 * As soon as every member has voted or is gone, or the time is up, whoever sees it proposes; the
 * first proposal is the decision (compare and set), so that there is exactly one.
 */
export async function shrinkGroup(
  group: ProcessGroup,
  options: NewGroupOptions,
): Promise<ProcessGroup> {
  const { world, id } = entryOf(group)
  const wait = waitOptions(options, world.timeout)
  const round = rounds.get(group) ?? 0
  const reason = `rank ${world.rank} shrinks the group, because ranks were lost`
  world.host.failGroup(id, reason)
  const { signal } = options
  const deadline = Deadline.after(wait.timeout)
  const decision = await decide(group, world, `shrink/${id}/${round}/`, deadline, signal)
  rounds.set(group, round + 1)
  const { survivors } = decision
  if (!survivors.includes(world.rank)) {
    const facts = { rank: world.rank, group: group.name, survivors: survivors.join(', ') }
    throw tsrError('ERR_TSR_EXCLUDED', facts)
  }
  const name = options.name ?? `[${survivors.join(',')}] of ${group.name}`
  const timeout = options.timeout ?? world.timeout
  return openGroup(group, { id: decision.id, name, members: survivors, timeout })
}

async function decide(
  group: ProcessGroup,
  world: World,
  folder: string,
  deadline: Deadline,
  signal: AbortSignal | undefined,
): Promise<Decision> {
  const { store, rank } = world
  const key = `${folder}decision`
  const cast = await voter(group, world, folder)
  for (;;) {
    const made = await look(store, key, signal)
    if (made !== undefined) return made
    const votes = await cast()
    const isThere = await present(world)
    const accused = new Set(votes.flatMap(({ gone }) => gone))
    const isAwaited = (member: number): boolean =>
      !votes.some((vote) => vote.rank === member) && !accused.has(member) && isThere(member)
    if (group.ranks.some(isAwaited) && !deadline.expired) continue
    const candidates = votes.filter((vote) => isThere(vote.rank))
    const survivors = survivorsOf(group.ranks, candidates)
    // a rank that cannot see itself in the store has no say
    if (!candidates.some((vote) => vote.rank === rank)) continue
    const own = JSON.stringify({ id: await takeGroupId(world), survivors })
    const { value } = await store.compareSet(key, undefined, own)
    return JSON.parse(new TextDecoder().decode(value)) as Decision
  }
}

/** Votes where that says something new; the votes of all so far, the last of each rank. */
async function voter(
  group: ProcessGroup,
  { host, store, rank }: World,
  folder: string,
): Promise<() => Promise<Vote[]>> {
  const key = `${folder}votes`
  let known = -1
  const cast = async (): Promise<Vote[]> => {
    const { gone: closed } = host
    const gone = group.ranks.filter((member) => closed[member] !== 0)
    if (gone.length !== known) {
      known = gone.length
      await store.append(key, `${JSON.stringify({ rank, gone } satisfies Vote)}\n`)
    }
    const lines = new TextDecoder()
      .decode(await store.get(key))
      .trim()
      .split('\n')
    const last = new Map(lines.map((line) => JSON.parse(line) as Vote).map((v) => [v.rank, v]))
    return [...last.values()]
  }
  await cast()
  return cast
}

/** The decision, as soon as there is one; undefined when it is time to look around. */
async function look(
  store: Store,
  key: string,
  signal: AbortSignal | undefined,
): Promise<Decision | undefined> {
  try {
    const text = await store.get(key, { timeout: LOOK, ...(signal && { signal }) })
    return JSON.parse(new TextDecoder().decode(text)) as Decision
  } catch (error) {
    if (isTsrError(error) && error.code === 'ERR_TSR_STORE_TIMEOUT') return undefined
    throw error
  }
}
