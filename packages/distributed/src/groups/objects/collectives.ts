import { where } from '@tsrun/core'
import type { Work } from '../../process-group.ts'
import type { CallOptions } from '../../call-options.ts'
import { checkRank, type Member } from '../calls/arguments.ts'
import { Collectives } from '../calls/collectives.ts'
import type { Operations } from '../calls/operations.ts'
import {
  decodeObject,
  encodeObject,
  packObjects,
  roomFor,
  unpackObjects,
  wordsFor,
} from './encoding.ts'
import { SteppedWork } from './stepped-work.ts'

/**
 * The collectives on objects. Each runs one collective for the lengths, then one for the payloads.
 * An object that cannot be encoded throws before the call takes a position among the collectives.
 */
export class ObjectCollectives {
  readonly #member: Member
  readonly #operations: Operations

  constructor(member: Member, operations: Operations) {
    this.#member = member
    this.#operations = operations
  }

  broadcast<T>(value: T, root: number, options: CallOptions | undefined): Work<T> {
    checkRank('broadcastObject', this.#member, root)
    const own = this.#member.rank === root ? encodeObject(value) : undefined
    const { sequence, calls } = this.#reserve()
    return new SteppedWork<T>(
      sequence,
      (function* () {
        const length = own?.length ?? new Int32Array(1)
        yield calls.broadcast(length, root, options)
        const words = own?.words ?? new Int32Array(wordsFor(length[0]!))
        yield calls.broadcast(words, root, options)
        // The root of a fake world sends nothing.
        return length[0] === 0 || own !== undefined ? value : (decodeObject(words, length[0]!) as T)
      })(),
    )
  }

  allGather<T>(value: T, options: CallOptions | undefined): Work<T[]> {
    const { rank, size } = this.#member
    const own = encodeObject(value)
    const { sequence, calls } = this.#reserve()
    return new SteppedWork<T[]>(
      sequence,
      (function* () {
        const lengths = new Int32Array(size)
        yield calls.allGather(lengths, own.length, options)
        const all = roomFor(lengths)
        yield calls.allGatherV(all.words, own.words, all.counts, options)
        return withOwn(unpackObjects(all) as T[], rank, value)
      })(),
    )
  }

  gather<T>(value: T, root: number, options: CallOptions | undefined): Work<T[] | undefined> {
    const { rank, size } = this.#member
    checkRank('gatherObject', this.#member, root)
    const own = encodeObject(value)
    const { sequence, calls } = this.#reserve()
    return new SteppedWork<T[] | undefined>(
      sequence,
      (function* () {
        const lengths = rank === root ? new Int32Array(size) : null
        yield calls.gather(lengths, own.length, root, options)
        const all = lengths === null ? undefined : roomFor(lengths)
        yield calls.gatherV(all?.words ?? null, own.words, all?.counts ?? null, root, options)
        return all === undefined ? undefined : withOwn(unpackObjects(all) as T[], root, value)
      })(),
    )
  }

  scatter<T>(values: readonly T[] | null, root: number, options: CallOptions | undefined): Work<T> {
    const { rank, size } = this.#member
    checkRank('scatterObject', this.#member, root)
    const given = rank === root ? checkValues('scatterObject', size, values) : undefined
    const all = given && packObjects(given)
    const { sequence, calls } = this.#reserve()
    return new SteppedWork<T>(
      sequence,
      (function* () {
        const length = new Int32Array(1)
        yield calls.scatter(length, all?.lengths ?? null, root, options)
        const words = new Int32Array(wordsFor(length[0]!))
        yield calls.scatterV(words, all?.words ?? null, all?.counts ?? null, root, options)
        return given === undefined ? (decodeObject(words, length[0]!) as T) : given[root]!
      })(),
    )
  }

  allToAll<T>(values: readonly T[], options: CallOptions | undefined): Work<T[]> {
    const { rank, size } = this.#member
    const sent = packObjects(checkValues('allToAllObject', size, values))
    const { sequence, calls } = this.#reserve()
    return new SteppedWork<T[]>(
      sequence,
      (function* () {
        const lengths = new Int32Array(size)
        yield calls.allToAll(lengths, sent.lengths, options)
        const all = roomFor(lengths)
        yield calls.allToAllV(all.words, sent.words, all.counts, sent.counts, options)
        return withOwn(unpackObjects(all) as T[], rank, values[rank]!)
      })(),
    )
  }

  /**
   * Reserves two consecutive positions among the group's collectives, for the two calls of a
   * collective on objects.
   */
  #reserve(): { readonly sequence: number; readonly calls: Collectives } {
    const operations = this.#operations
    const sequence = operations.reserve(2)
    let next = sequence
    const calls = new Collectives(this.#member, {
      arena: operations.arena,
      start: (call) => operations.start({ ...call, sequence: next++ }),
      startAwaited: (start) => operations.startAwaited(start),
      prepare: (call) => operations.prepare(call),
    })
    return { sequence, calls }
  }
}

/** Puts the caller's own value into the result, because a copy would be another object. */
function withOwn<T>(values: T[], rank: number, value: T): T[] {
  values[rank] = value
  return values
}

function checkValues<T>(
  operation: string,
  size: number,
  values: readonly T[] | null,
): readonly T[] {
  return where<readonly T[]>(
    (value) => Array.isArray(value) && value.length === size,
    `an array of ${size} values, one for each rank (${operation})`,
  ).check('values', values)
}
