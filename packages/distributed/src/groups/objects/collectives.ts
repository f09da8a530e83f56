import { where } from '@tsrun/core'
import type { Work } from '../../process-group.ts'
import type { CallOptions } from '../../call-options.ts'
import { checkRank } from '../calls/arguments.ts'
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
import { SteppedWork, type Steps } from './stepped-work.ts'

/**
 * The collectives on objects. Each runs one collective for the lengths, then one for the payloads.
 * An object that cannot be encoded throws before the call takes a position among the collectives.
 */
export class ObjectCollectives extends Collectives {
  declare readonly operations: Operations

  broadcastObject<T>(value: T, root: number, options?: CallOptions): Work<T> {
    checkRank('broadcastObject', this, root)
    const own = this.rank === root ? encodeObject(value) : undefined
    return this.#run<T>(function* (calls) {
      const length = own?.length ?? new Int32Array(1)
      yield calls.broadcast(length, root, options)
      const words = own?.words ?? new Int32Array(wordsFor(length[0]!))
      yield calls.broadcast(words, root, options)
      // The root of a fake world sends nothing.
      return length[0] === 0 || own !== undefined ? value : (decodeObject(words, length[0]!) as T)
    })
  }

  allGatherObject<T>(value: T, options?: CallOptions): Work<T[]> {
    const { rank, size } = this
    const own = encodeObject(value)
    return this.#run<T[]>(function* (calls) {
      const lengths = new Int32Array(size)
      yield calls.allGather(lengths, own.length, options)
      const all = roomFor(lengths)
      yield calls.allGatherV(all.words, own.words, all.counts, options)
      return withOwn(unpackObjects(all) as T[], rank, value)
    })
  }

  gatherObject<T>(value: T, root: number, options?: CallOptions): Work<T[] | undefined> {
    const { rank, size } = this
    checkRank('gatherObject', this, root)
    const own = encodeObject(value)
    return this.#run<T[] | undefined>(function* (calls) {
      const lengths = rank === root ? new Int32Array(size) : null
      yield calls.gather(lengths, own.length, root, options)
      const all = lengths === null ? undefined : roomFor(lengths)
      yield calls.gatherV(all?.words ?? null, own.words, all?.counts ?? null, root, options)
      return all === undefined ? undefined : withOwn(unpackObjects(all) as T[], root, value)
    })
  }

  scatterObject<T>(values: readonly T[] | null, root: number, options?: CallOptions): Work<T> {
    const { rank, size } = this
    checkRank('scatterObject', this, root)
    const given = rank === root ? checkValues('scatterObject', size, values) : undefined
    const all = given && packObjects(given)
    return this.#run<T>(function* (calls) {
      const length = new Int32Array(1)
      yield calls.scatter(length, all?.lengths ?? null, root, options)
      const words = new Int32Array(wordsFor(length[0]!))
      yield calls.scatterV(words, all?.words ?? null, all?.counts ?? null, root, options)
      return given === undefined ? (decodeObject(words, length[0]!) as T) : given[root]!
    })
  }

  allToAllObject<T>(values: readonly T[], options?: CallOptions): Work<T[]> {
    const { rank, size } = this
    const sent = packObjects(checkValues('allToAllObject', size, values))
    return this.#run<T[]>(function* (calls) {
      const lengths = new Int32Array(size)
      yield calls.allToAll(lengths, sent.lengths, options)
      const all = roomFor(lengths)
      yield calls.allToAllV(all.words, sent.words, all.counts, sent.counts, options)
      return withOwn(unpackObjects(all) as T[], rank, values[rank]!)
    })
  }

  /**
   * Runs a collective on objects. Reserves two consecutive positions among the group's collectives
   * for its two calls.
   */
  #run<T>(steps: (calls: Collectives) => Steps<T>): Work<T> {
    const { operations } = this
    const sequence = operations.reserve(2)
    let next = sequence
    const calls = new Collectives(this, {
      arena: operations.arena,
      start: (call) => operations.start({ ...call, sequence: next++ }),
      inMode: (mode, run) => operations.inMode(mode, run),
    })
    return new SteppedWork<T>(sequence, steps(calls))
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
