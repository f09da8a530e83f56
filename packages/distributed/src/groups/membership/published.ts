import {
  count,
  encode,
  integer,
  list,
  object,
  parseJson,
  text,
  tsrError,
  type Of,
  type Schema,
  type TsrError,
} from '@tsrun/core'
import { LARGEST_GROUP } from '../../operation.ts'

/*
 * Checks the data that ranks send each other, through the store or as objects, before they form a
 * group. A rank of another version, or any program with the job's token, can send anything.
 */

/** A value of the store, which another rank may have deleted. */
type Bytes = Uint8Array | undefined

/**
 * Parses a value that a rank has published in the store.
 *
 * @param author - the publisher, for the error
 * @throws ERR_TSR_MESSAGE_INVALID if it does not match the schema
 */
export function readPublished<T>(bytes: Bytes, of: Schema<T>, author: string): T {
  const published = parseJson(new TextDecoder().decode(bytes), of)
  if (published !== undefined) return published
  throw notPublished(bytes?.byteLength ?? 0, author)
}

function notPublished(bytes: number, author: string): TsrError {
  const reason = `it is not what ${author} has to publish; do all ranks run the same version of tsrun?`
  return tsrError('ERR_TSR_MESSAGE_INVALID', { bytes, reason })
}

const groupId = count({ from: 1, to: LARGEST_GROUP })

/** The data that the lowest rank of a new group publishes. */
export const publishedGroup = object({ id: groupId, order: text, first: count() })

export type PublishedGroup = Of<typeof publishedGroup>

/** The result of a shrink: the first proposal that reached the store. */
export interface Decision {
  readonly id: number
  /** World ranks of the survivors, in the order of the old group. */
  readonly survivors: readonly number[]
}

/**
 * Parses a decision.
 * @param ranks - ranks of the group that shrinks
 */
export function readDecision(bytes: Bytes, ranks: readonly number[]): Decision {
  const survivors = list(count(), ranks.length).refine((some) => isPartOf(some, ranks))
  const decision = object({ id: groupId, survivors })
  return readPublished(bytes, decision, 'a rank that decides on a shrink')
}

/** Whether `part` is a subsequence of `ranks`. */
function isPartOf(part: readonly number[], ranks: readonly number[]): boolean {
  const left = new Set(part)
  return ranks.filter((rank) => left.has(rank)).join() === part.join()
}

/** A rank's vote on a shrink. All ranks are world ranks. */
export interface Vote {
  readonly rank: number
  /** Members to which this rank has lost the connection. */
  readonly gone: readonly number[]
}

/** Parses the votes of a log, one per line. @param ranks - ranks of the group that shrinks */
export function readVotes(bytes: Uint8Array, ranks: readonly number[]): Vote[] {
  const members = new Set(ranks)
  const member = count().refine((rank) => members.has(rank))
  const ballot = object({ rank: member, gone: list(member, ranks.length) })
  const lines = new TextDecoder().decode(bytes).trim().split('\n')
  return lines.map((line) => {
    const vote = parseJson(line, ballot)
    if (vote === undefined) throw notPublished(bytes.byteLength, 'a rank that votes on a shrink')
    return vote
  })
}

export function readGeneration(bytes: Bytes): number {
  return readPublished(bytes, count(), 'a rank that begins a generation of the world')
}

/** The arguments that one rank passes to `split`. */
export type SplitChoice = readonly [color: number | null, key: number]

const splitChoice = list(integer.nullable(), 2).refine(([, key]) => typeof key === 'number')

/**
 * Checks the arguments of `split` that the ranks have sent.
 * @param values - one for each rank of the group, in rank order
 */
export function checkChoices(values: readonly unknown[]): readonly SplitChoice[] {
  const rank = values.findIndex((value) => !splitChoice.is(value))
  if (rank < 0) return values as readonly SplitChoice[]
  throw notPublished(encode(values[rank]).byteLength, `rank ${rank} of a group that is split`)
}
