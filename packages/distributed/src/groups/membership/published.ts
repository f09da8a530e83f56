import {
  encode,
  isCount,
  isInteger,
  isText,
  listOf,
  nullable,
  objectOf,
  parseJson,
  tsrError,
  type Shape,
  type TsrError,
} from '@tsrun/core'
import { LARGEST_GROUP } from '../../operation.ts'

/*
 * What ranks tell each other, through the store or as objects, before they are of one group. A rank of
 * another version, or another program with the token of the job, can write anything there.
 */

/** Of a value of the store, which another rank may have deleted. */
type Bytes = Uint8Array | undefined

/**
 * What a rank has published in the store.
 *
 * @param author - who had to publish it, as an error names it
 * @throws ERR_TSR_MESSAGE_INVALID for anything else
 */
export function readPublished<T>(bytes: Bytes, of: Shape<T>, author: string): T {
  const published = parseJson(new TextDecoder().decode(bytes), of)
  if (published !== undefined) return published
  throw notPublished(bytes?.byteLength ?? 0, author)
}

function notPublished(bytes: number, author: string): TsrError {
  const reason = `it is not what ${author} has to publish; do all ranks run the same version of tsrun?`
  return tsrError('ERR_TSR_MESSAGE_INVALID', { bytes, reason })
}

const isGroupId = (value: unknown): value is number =>
  isCount(value) && value > 0 && value <= LARGEST_GROUP

/** What the lowest rank of a new group has published about it. */
export interface PublishedGroup {
  readonly id: number
  readonly order: string
  readonly first: number
}

export const isPublishedGroup = objectOf<PublishedGroup>({
  id: isGroupId,
  order: isText,
  first: isCount,
})

/** What all ranks follow that shrink a group: the first decision that reached the store. */
export interface Decision {
  readonly id: number
  /** World ranks, in the order of the old group. */
  readonly survivors: readonly number[]
}

/** @param ranks - of the group that shrinks */
export function readDecision(bytes: Bytes, ranks: readonly number[]): Decision {
  const isDecision = objectOf<Decision>({
    id: isGroupId,
    survivors: (value): value is readonly number[] =>
      listOf(isCount, ranks.length)(value) && isPartOf(value, ranks),
  })
  return readPublished(bytes, isDecision, 'a rank that decides on a shrink')
}

/** Whether a list leaves some out, and keeps the order of the others. */
function isPartOf(part: readonly number[], ranks: readonly number[]): boolean {
  const left = new Set(part)
  return ranks.filter((rank) => left.has(rank)).join() === part.join()
}

/** What a rank says about a shrink. Ranks of the world. */
export interface Vote {
  readonly rank: number
  /** Members that it has lost the connection to. */
  readonly gone: readonly number[]
}

/**
 * The votes of a log, one a line.
 *
 * @param ranks - of the group that shrinks
 */
export function readVotes(bytes: Uint8Array, ranks: readonly number[]): Vote[] {
  const members = new Set(ranks)
  const isMember = (value: unknown): value is number => members.has(value as number)
  const isVote = objectOf<Vote>({ rank: isMember, gone: listOf(isMember, ranks.length) })
  const lines = new TextDecoder().decode(bytes).trim().split('\n')
  return lines.map((line) => {
    const vote = parseJson(line, isVote)
    if (vote === undefined) throw notPublished(bytes.byteLength, 'a rank that votes on a shrink')
    return vote
  })
}

/** The number of a generation of the world. */
export function readGeneration(bytes: Bytes): number {
  return readPublished(bytes, isCount, 'a rank that begins a generation of the world')
}

/** What a rank gives to `split`: its colour and its key. */
export type SplitChoice = readonly [color: number | null, key: number]

const isColor = nullable(isInteger)

/** @param values - of the ranks of the group, in its order */
export function checkChoices(values: readonly unknown[]): readonly SplitChoice[] {
  for (const [rank, value] of values.entries()) {
    if (!Array.isArray(value) || value.length !== 2 || !isColor(value[0]) || !isInteger(value[1])) {
      throw notPublished(encode(value).byteLength, `rank ${rank} of a group that is split`)
    }
  }
  return values as readonly SplitChoice[]
}
