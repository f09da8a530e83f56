import { where } from '@tsrun/core'
import type { Work } from '../../process-group.ts'
import type { CallOptions } from '../../call-options.ts'
import { checkRank } from '../calls/arguments.ts'
import { Collectives } from '../calls/collectives.ts'
import type { Operations } from '../calls/operations.ts'
import { decodeObject, encodeObject, packObjects, roomFor, unpackObjects } from './encoding.ts'
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
      const bytes = own?.bytes ?? roomFor(length)
      yield calls.broadcast(bytes, root, options)
      // The root of a fake world sends nothing.
      return bytes.length === 0 || own !== undefined ? value : (decodeObject(bytes) as T)
    })
  }

  allGatherObject<T>(value: T, options?: CallOptions): Work<T[]> {
    const { rank, size } = this
    const own = encodeObject(value)
    return this.#run<T[]>(function* (calls) {
      const lengths = new Int32Array(size)
      yield calls.allGather(lengths, own.length, options)
      const all = roomFor(lengths)
      yield calls.allGatherV(all, own.bytes, [...lengths], options)
      return withOwn(unpackObjects(lengths, all) as T[], rank, value)
    })
  }

  gatherObject<T>(value: T, root: number, options?: CallOptions): Work<T[] | undefined> {
    const { rank, size } = this
    checkRank('gatherObject', this, root)
    const own = encodeObject(value)
    return this.#run<T[] | undefined>(function* (calls) {
      const isRoot = rank === root
      const lengths = new Int32Array(size)
      yield calls.gather(isRoot ? lengths : null, own.length, root, options)
      const all = roomFor(lengths)
      const sent = countsOf(size, root, own.bytes.length)
      yield calls.allToAllV(all, own.bytes, [...lengths], sent, options)
      return isRoot ? withOwn(unpackObjects(lengths, all) as T[], root, value) : undefined
    })
  }

  scatterObject<T>(values: readonly T[] | null, root: number, options?: CallOptions): Work<T> {
    const { rank, size } = this
    checkRank('scatterObject', this, root)
    const given = rank === root ? checkValues('scatterObject', size, values) : undefined
    const all = packObjects(given ?? [])
    return this.#run<T>(function* (calls) {
      const length = new Int32Array(1)
      yield calls.scatter(length, given === undefined ? null : all.lengths, root, options)
      const own = roomFor(length)
      const coming = countsOf(size, root, own.length)
      const sent = given === undefined ? countsOf(size, root, 0) : [...all.lengths]
      yield calls.allToAllV(own, all.bytes, coming, sent, options)
      return given === undefined ? (decodeObject(own) as T) : given[root]!
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
      start: (call) => operations.start({ ...call, sequence: next++ }),
      inMode: (mode, run) => operations.inMode(mode, run),
    })
    return new SteppedWork<T>(sequence, steps(calls))
  }
}

/** Returns the lengths of the slices of an exchange with the root alone. */
function countsOf(size: number, root: number, count: number): number[] {
  return Array.from({ length: size }, (_, rank) => (rank === root ? count : 0))
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
