import { tsrError } from '@tsrun/core'
import type { CallOptions, Work } from '../../process-group.ts'
import { checkRoot } from '../calls/arguments.ts'
import {
  allGatherCall,
  allToAllCall,
  broadcastCall,
  gatherCall,
  scatterCall,
} from '../calls/collectives.ts'
import type { EngineProcessGroup } from '../group.ts'
import { fromWords, packObjects, roomFor, toWords, unpackObjects, wordsFor } from './encoding.ts'
import { SteppedWork } from '../calls/stepped-work.ts'
import { allGatherVCall, allToAllVCall, gatherVCall, scatterVCall } from '../calls/uneven.ts'

/**
 * The collectives on values of any shape: one for the lengths, then one for the payloads. What
 * cannot be encoded throws before, so that it uses up no place among the collectives.
 */
export class ObjectCollectives {
  readonly #group: EngineProcessGroup

  constructor(group: EngineProcessGroup) {
    this.#group = group
  }

  broadcast<T>(value: T, root: number, options: CallOptions | undefined): Work<T> {
    const group = this.#group
    checkRoot('broadcastObject', group, root)
    const mine = group.rank === root ? toWords(value) : undefined
    const sequence = group.reserveSequences(2)
    return new SteppedWork<T>(
      sequence,
      (function* () {
        const length = mine?.length ?? new Int32Array(1)
        yield group.submit(broadcastCall(group, length, root, options), sequence)
        const words = mine?.words ?? new Int32Array(wordsFor(length[0]!))
        yield group.submit(broadcastCall(group, words, root, options), sequence + 1)
        return mine === undefined ? (fromWords(words, length[0]!) as T) : value
      })(),
    )
  }

  allGather<T>(value: T, options: CallOptions | undefined): Work<T[]> {
    const group = this.#group
    const mine = toWords(value)
    const sequence = group.reserveSequences(2)
    return new SteppedWork<T[]>(
      sequence,
      (function* () {
        const lengths = new Int32Array(group.size)
        yield group.submit(allGatherCall(group, lengths, mine.length, options), sequence)
        const all = roomFor(lengths)
        const call = allGatherVCall(group, all.words, mine.words, all.counts, options)
        yield group.submit(call, sequence + 1)
        return withOwn(unpackObjects(all) as T[], group.rank, value)
      })(),
    )
  }

  gather<T>(value: T, root: number, options: CallOptions | undefined): Work<T[] | undefined> {
    const group = this.#group
    checkRoot('gatherObject', group, root)
    const mine = toWords(value)
    const sequence = group.reserveSequences(2)
    const isRoot = group.rank === root
    return new SteppedWork<T[] | undefined>(
      sequence,
      (function* () {
        const lengths = isRoot ? new Int32Array(group.size) : null
        yield group.submit(gatherCall(group, lengths, mine.length, root, options), sequence)
        const all = lengths === null ? undefined : roomFor(lengths)
        const [words, counts] = [all?.words ?? null, all?.counts ?? null]
        const call = gatherVCall(group, words, mine.words, counts, root, options)
        yield group.submit(call, sequence + 1)
        return all === undefined ? undefined : withOwn(unpackObjects(all) as T[], root, value)
      })(),
    )
  }

  scatter<T>(values: readonly T[] | null, root: number, options: CallOptions | undefined): Work<T> {
    const group = this.#group
    checkRoot('scatterObject', group, root)
    const isRoot = group.rank === root
    const all = isRoot ? packObjects(checkValues('scatterObject', group.size, values)) : undefined
    const sequence = group.reserveSequences(2)
    return new SteppedWork<T>(
      sequence,
      (function* () {
        const length = new Int32Array(1)
        const lengths = all?.lengths ?? null
        yield group.submit(scatterCall(group, length, lengths, root, options), sequence)
        const words = new Int32Array(wordsFor(length[0]!))
        const [whole, counts] = [all?.words ?? null, all?.counts ?? null]
        const call = scatterVCall(group, words, whole, counts, root, options)
        yield group.submit(call, sequence + 1)
        return isRoot ? values![root]! : (fromWords(words, length[0]!) as T)
      })(),
    )
  }

  allToAll<T>(values: readonly T[], options: CallOptions | undefined): Work<T[]> {
    const group = this.#group
    const sent = packObjects(checkValues('allToAllObject', group.size, values))
    const sequence = group.reserveSequences(2)
    return new SteppedWork<T[]>(
      sequence,
      (function* () {
        const lengths = new Int32Array(group.size)
        yield group.submit(allToAllCall(group, lengths, sent.lengths, options), sequence)
        const coming = roomFor(lengths)
        const call = allToAllVCall(
          group,
          coming.words,
          sent.words,
          coming.counts,
          sent.counts,
          options,
        )
        yield group.submit(call, sequence + 1)
        return withOwn(unpackObjects(coming) as T[], group.rank, values[group.rank]!)
      })(),
    )
  }
}

/** The own value is the caller's, not a copy of it. */
function withOwn<T>(values: T[], rank: number, value: T): T[] {
  values[rank] = value
  return values
}

function checkValues<T>(
  operation: string,
  size: number,
  values: readonly T[] | null,
): readonly T[] {
  if (Array.isArray(values) && values.length === size) return values as readonly T[]
  const value = Array.isArray(values) ? `a list of ${values.length}` : String(values)
  const expected = `a list of ${size} values, one for each rank (${operation})`
  throw tsrError('ERR_TSR_ARGUMENT', { name: 'values', value, expected })
}
