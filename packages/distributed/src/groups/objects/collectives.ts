import { where } from '@tsrun/core'
import type { Work } from '../../process-group.ts'
import type { CallOptions } from '../../call-options.ts'
import { checkRank } from '../calls/arguments.ts'
import { Collectives } from '../calls/collectives.ts'
import type { Operations } from '../calls/operations.ts'
import { decodeObject, encodeObject, largestOf, roomFor, unpackObjects } from './encoding.ts'
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
      const lengths = new Int32Array(size)
      yield calls.allGather(lengths, own.length, options)
      const slot = largestOf(lengths)
      const padded = new Uint8Array(slot)
      padded.set(own.bytes)
      const all = rank === root ? new Uint8Array(size * slot) : null
      yield calls.gather(all, padded, root, options)
      return all === null
        ? undefined
        : withOwn(unpackObjects(lengths, all, slot) as T[], root, value)
    })
  }

  scatterObject<T>(values: readonly T[] | null, root: number, options?: CallOptions): Work<T> {
    const { rank, size } = this
    checkRank('scatterObject', this, root)
    const given = rank === root ? checkValues('scatterObject', size, values) : undefined
    const parts = given?.map(encodeObject)
    return this.#run<T>(function* (calls) {
      const lengths = Int32Array.from({ length: size }, (_, i) => parts?.[i]!.bytes.length ?? 0)
      yield calls.broadcast(lengths, root, options)
      const slot = largestOf(lengths)
      const padded = new Uint8Array(slot)
      const all = parts === undefined ? null : new Uint8Array(size * slot)
      for (const [i, { bytes }] of parts?.entries() ?? []) all!.set(bytes, i * slot)
      yield calls.scatter(padded, all, root, options)
      const own = padded.subarray(0, lengths[rank])
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
      isFake: operations.isFake,
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
