import { Deadline, isTsrError, tsrError } from '@tsrun/core'
import type { Store } from '@tsrun/store'
import type { NewGroupOptions } from '../../process-group.ts'
import { waitOptions } from '../calls/arguments.ts'
import type { GroupIdentity } from '../calls/operations.ts'
import { takeGroupId } from './new-group.ts'
import { readDecision, readVotes, type Decision, type Vote } from './published.ts'
import type { World } from './world.ts'

/** Milliseconds between two checks of the votes and of presence. */
const CHECK_INTERVAL = 25

type Shrinking = Pick<GroupIdentity, 'id' | 'name' | 'ranks'>

/**
 * Agrees with the survivors of a group on a new group, for `GroupRelations.shrink`. For each
 * shrink, the store keeps a log of votes and one decision. A rank votes when it calls this
 * function: it names the members that it has lost. It votes again if it loses more members. A rank
 * proposes a decision once every member has voted or is gone, or when the time is up. The store
 * accepts only the first proposal (compare and set), so there is exactly one decision.
 *
 * @throws ERR_TSR_EXCLUDED, ERR_TSR_STORE_*
 */
export async function agreeOnSurvivors(
  world: World,
  group: Shrinking,
  options: NewGroupOptions,
): Promise<GroupIdentity> {
  const { rank } = world
  const wait = waitOptions(options, world.timeout)
  world.runner.failGroup(group.id, `rank ${rank} shrinks the group, because ranks were lost`)
  const deadline = Deadline.after(wait.timeout)
  const { id, survivors } = await decide(group, world, deadline, options.signal)
  world.countShrink(group.id)
  if (!survivors.includes(rank)) {
    const facts = { rank, group: group.name, survivors: survivors.join(', ') }
    throw tsrError('ERR_TSR_EXCLUDED', facts)
  }
  const name = options.name ?? `[${survivors.join(',')}] of ${group.name}`
  return { id, name, rank: survivors.indexOf(rank), ranks: survivors, timeout: wait.timeout }
}

async function decide(
  group: Shrinking,
  world: World,
  deadline: Deadline,
  signal: AbortSignal | undefined,
): Promise<Decision> {
  const { store, rank } = world
  const folder = world.shrinkFolder(group.id)
  const key = `${folder}decision`
  const castVote = createVoter(group, world, `${folder}votes`)
  await castVote()
  for (;;) {
    const made = await waitForDecision(store, key, group, signal)
    if (made !== undefined) return made
    const votes = await castVote()
    const isPresent = await world.findPresent()
    const accused = new Set(votes.flatMap(({ gone }) => gone))
    const isAwaited = (member: number): boolean =>
      !votes.some((vote) => vote.rank === member) && !accused.has(member) && isPresent(member)
    if (group.ranks.some(isAwaited) && !deadline.expired) continue
    const candidates = votes.filter((vote) => isPresent(vote.rank))
    const survivors = survivorsOf(group.ranks, candidates)
    // Propose nothing if the store does not list this rank as present.
    if (!candidates.some((vote) => vote.rank === rank)) continue
    const own = JSON.stringify({ id: await takeGroupId(world), survivors })
    const { value } = await store.compareSet(key, undefined, own)
    return readDecision(value, group.ranks)
  }
}

/**
 * Returns a function that reads all votes. The function first votes, if this rank has not voted yet
 * or has lost more members since.
 */
function createVoter(
  { ranks }: Shrinking,
  { runner, store, rank }: World,
  key: string,
): () => Promise<Vote[]> {
  let known = -1
  return async () => {
    const lost = runner.gone()
    const gone = ranks.filter((member) => lost[member] !== 0)
    if (gone.length !== known) {
      known = gone.length
      await store.append(key, `${JSON.stringify({ rank, gone } satisfies Vote)}\n`)
    }
    const all = readVotes(await store.get(key), ranks)
    // Count only the last vote of each rank.
    return [...new Map(all.map((vote) => [vote.rank, vote])).values()]
  }
}

/** Waits for the decision. Returns undefined when it is time to check votes and presence again. */
async function waitForDecision(
  store: Store,
  key: string,
  { ranks }: Shrinking,
  signal: AbortSignal | undefined,
): Promise<Decision | undefined> {
  try {
    const text = await store.get(key, { timeout: CHECK_INTERVAL, signal })
    return readDecision(text, ranks)
  } catch (error) {
    if (isTsrError(error) && error.code === 'ERR_TSR_STORE_TIMEOUT') return undefined
    throw error
  }
}

/**
 * Returns a set of voters that are all connected to each other; it is nearly as large as possible.
 * The search repeatedly removes the rank with the most lost connections, on a tie the highest,
 * until no two ranks of the set have lost their connection.
 *
 * @param members - ranks of the group; the result has their order
 */
export function survivorsOf(members: readonly number[], votes: readonly Vote[]): number[] {
  const lost = new Map(votes.map(({ rank }) => [rank, new Set<number>()]))
  for (const { rank, gone } of votes) {
    for (const peer of gone) {
      if (!lost.has(peer)) continue
      lost.get(rank)?.add(peer)
      lost.get(peer)?.add(rank)
    }
  }
  for (;;) {
    const [worst] = [...lost].sort((a, b) => b[1].size - a[1].size || b[0] - a[0])
    if (worst === undefined || worst[1].size === 0) break
    lost.delete(worst[0])
    for (const peers of lost.values()) peers.delete(worst[0])
  }
  return members.filter((member) => lost.has(member))
}
