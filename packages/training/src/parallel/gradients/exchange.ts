import { tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { timeSpan } from '@tsrun/distributed/record'
import type { Tensor } from '@tensorflow/tfjs-core'
import { addTo, viewOf, writeTo } from '../../backend/host-memory.ts'
import type { Parameter } from '../../model/parameter.ts'
import { currentPass } from '../../model/pass.ts'
import {
  checkShape,
  type GradientListener,
  type GradientMemory,
  type GradientPlace,
} from '../../model/recording.ts'
import { sizeOf } from '../../tfjs/host-arrays.ts'

/*
 * The layout of gradient buckets. A *bucket* holds several gradients, one after the other, which
 * are sent together. With ZeRO, a bucket is padded with zeros and divided into equal *shares*, one
 * per rank. A parameter that crosses the border of two shares is owned by both ranks.
 */

/** The position of a parameter's gradient in its bucket, in elements. */
interface Slot {
  readonly parameter: Parameter
  readonly offset: number
  readonly length: number
}

/** Gradients that are sent together in one message buffer. */
export interface Bucket {
  readonly slots: readonly Slot[]
  /** The number of float32 elements. */
  readonly length: number
}

const ELEMENT = 4
/** The first bucket may exceed its limit by this fraction if one bucket then holds all gradients. */
const REST = 1 / 8

/**
 * Divides parameters into buckets, in the order in which their gradients are expected. A gradient
 * that is larger than a bucket gets its own bucket. If the second bucket would be small, it is
 * merged into the first.
 *
 * @param sizes - the largest sizes in bytes of float32, of the first bucket and of others. A small first
 *   bucket starts communication early
 */
export function planBuckets(
  parameters: readonly Parameter[],
  { bucketBytes, firstBucketBytes }: Readonly<Record<'bucketBytes' | 'firstBucketBytes', number>>,
): Bucket[] {
  const buckets: Bucket[] = []
  let list: Parameter[] = []
  let length = 0
  const close = () => {
    if (list.length > 0) buckets.push(bucketOf(list))
    list = []
    length = 0
  }
  for (const parameter of parameters) {
    const size = sizeOf(parameter.shape)
    const limit = buckets.length === 0 ? firstBucketBytes : bucketBytes
    if (length > 0 && (length + size) * ELEMENT > limit) close()
    list.push(parameter)
    length += size
  }
  // In a small model, a small second bucket is not worth a separate collective.
  const isRest = buckets.length === 1 && ELEMENT * length <= firstBucketBytes * REST
  if (isRest) list.unshift(...buckets.pop()!.slots.map(({ parameter }) => parameter))
  close()
  return buckets
}

export function bucketOf(parameters: readonly Parameter[]): Bucket {
  let length = 0
  const slots = parameters.map((parameter) => {
    const slot = { parameter, offset: length, length: sizeOf(parameter.shape) }
    length += slot.length
    return slot
  })
  return { slots, length }
}

/** Returns the label of a bucket's collectives, for error messages. */
export function labelOf({ slots }: Bucket, index: number): string {
  const more = slots.length > 1 ? ` to ${slots.at(-1)!.parameter.name}` : ''
  return `gradients, bucket ${index}: ${slots[0]!.parameter.name}${more}`
}

/** A bucket that is divided into one share per rank. */
export interface SharedBucket extends Bucket {
  /** The number of elements of each rank's share. */
  readonly share: number
  /** The number of elements of all shares, including the padding. */
  readonly padded: number
}

/** Pads a bucket to a multiple of `ranks` elements, so that all shares are equal. */
export function padBucket(bucket: Bucket, ranks: number): SharedBucket {
  const share = Math.ceil(bucket.length / ranks)
  return { ...bucket, share, padded: share * ranks }
}

/**
 * Returns the ranges [from, to) of a bucket's parameters that a rank owns, in row-major order: at most one
 * range per parameter. `at` is the offset of the range in the rank's share of the bucket, in elements.
 */
export function ownedRanges({ slots, share }: SharedBucket, rank: number) {
  const begin = rank * share
  return slots.flatMap(({ parameter, offset, length }) => {
    const from = Math.max(begin - offset, 0)
    const to = Math.min(begin + share - offset, length)
    return from < to ? [{ parameter, from, to, at: offset + from - begin }] : []
  })
}

/** The collectives and bytes of one step. */
export interface Traffic {
  readonly collectives: number
  /** The total size of the collectives' buffers in bytes. */
  readonly bytes: number
}

interface Arrivals {
  readonly index: number
  readonly bucket: Bucket
  /** Names of parameters that have received a gradient. Later passes may still add to it. */
  readonly present: Set<string>
  /** Names of parameters whose gradient has all its contributions in this step. */
  readonly complete: Set<string>
}

interface Place extends Arrivals {
  readonly slot: Slot
  /** The part of the bucket's memory that holds the gradient; set by `placeOf`. */
  values: Float32Array | undefined
}

/** The exchange of gradients between ranks, with all-reduce or reduce-scatter. */
export interface GradientExchange extends ReturnType<typeof fillBuckets> {
  /** Completes all work that must precede another collective over the same ranks. */
  beforeTotals(): Promise<void>
  /** Waits until the exchanges of all buckets have completed. */
  finished(): Promise<void>
}

/**
 * Creates the gradient listener of a replica; see `Averaging.onGradient`.
 *
 * @param open - checks that the replica may take gradients now. Returns the exchange of the step, and whether
 *   the pass is the last one of the step
 * @param fail - called with each error; returns it
 * @param keepsBuckets - whether backward passes can write into the buckets
 */
export function gradientListener(
  open: () => { readonly exchange: GradientExchange; readonly isLast: boolean },
  fail: (error: unknown) => unknown,
  keepsBuckets: boolean,
): GradientListener {
  const guarded = <T>(use: (opened: ReturnType<typeof open>) => T): T => {
    try {
      return use(open())
    } catch (error) {
      throw fail(error)
    }
  }
  const isEmpty = () => currentPass()?.isEmpty === true
  const take: GradientListener = (parameter, gradient) => {
    try {
      guarded(({ exchange, isLast }) => {
        if (!isEmpty()) exchange.add(parameter, gradient, isLast)
      })
    } finally {
      gradient.dispose()
    }
  }
  if (!keepsBuckets) return take
  const memory: GradientMemory = {
    placeOf: (parameter) =>
      guarded(({ exchange }) => (isEmpty() ? undefined : exchange.placeOf(parameter))),
    written: (parameter) => {
      guarded(({ exchange, isLast }) => {
        exchange.written(parameter, isLast)
      })
    },
  }
  return Object.assign(take, { memory })
}

/**
 * Fills buckets with the gradients of a step during the backward pass, and starts to exchange them, one
 * bucket at a time. Every rank starts the buckets in the same order, even if gradients are computed in
 * different orders.
 *
 * @param memoryOf - returns the memory of a bucket
 * @param start - starts to exchange a bucket
 */
export function fillBuckets(
  buckets: readonly Bucket[],
  group: ProcessGroup,
  memoryOf: (index: number) => Float32Array,
  start: (index: number) => void,
) {
  const all = buckets.map((bucket, index): Arrivals => {
    return { index, bucket, present: new Set(), complete: new Set() }
  })
  // The copies in `places` share the sets: `clear` empties the sets and never replaces them.
  const places = new Map<string, Place>()
  for (const arrivals of all) {
    for (const slot of arrivals.bucket.slots) {
      places.set(slot.parameter.name, { ...arrivals, slot, values: undefined })
    }
  }
  let started = 0
  let order: string[] = []

  const partOf = (index: number, { offset, length }: Slot) =>
    memoryOf(index).subarray(offset, offset + length)
  const startComplete = () => {
    for (;;) {
      const next = all[started]
      if (next === undefined || next.complete.size < next.bucket.slots.length) return
      started++
      start(next.index)
    }
  }
  const arrive = (name: string, { present, complete }: Place, isLast: boolean) => {
    present.add(name)
    if (!isLast) return
    complete.add(name)
    order.push(name)
    startComplete()
  }
  const clear = () => {
    for (const { present, complete } of all) {
      present.clear()
      complete.clear()
    }
    started = 0
    order = []
  }
  return {
    /** The number of buckets whose exchange has started. */
    started: () => started,

    /** Names of parameters in the order in which their gradients became complete. */
    order: () => order,

    /** The names of all parameters, bucket by bucket. */
    names: () => [...places.keys()],

    /** For each parameter in `names`: whether it has a gradient in this step. */
    used: () => Array.from(places, ([name, { present }]) => present.has(name)),

    /**
     * Adds a gradient to its bucket, and starts all buckets that are now complete. Ignores the gradients of
     * frozen parameters. The caller still owns the tensor.
     *
     * @param isLast - whether no other pass of this step adds to the parameter's gradient
     * @throws ERR_TSR_GRADIENT_TWICE; ERR_TSR_ARGUMENT when the gradient does not have the parameter's
     *   shape; ERR_TSR_SYNC_READ when the backend can only read values asynchronously
     */
    add({ name, shape }: Parameter, gradient: Tensor, isLast: boolean) {
      const place = places.get(name)
      if (place === undefined) return
      const { index, slot, present, complete } = place
      if (complete.has(name)) throw tsrError('ERR_TSR_GRADIENT_TWICE', { parameter: name })
      checkShape(`the gradient of ${name}`, gradient, shape)
      const isFirst = !present.has(name)
      const target = partOf(index, slot)
      const facts = { name, bytes: target.byteLength }
      timeSpan(group.spans, isFirst ? 'pack' : 'reduce', facts, () => {
        if (!isFirst) {
          addTo(target, gradient)
          return
        }
        const written = writeTo(gradient, target)
        if (written === undefined) return
        written.catch(() => undefined)
        // `viewOf` throws ERR_TSR_SYNC_READ, because the values can only be read asynchronously.
        viewOf(gradient)
      })
      arrive(name, place, isLast)
    },

    /**
     * Returns the memory in which a backward pass can write or accumulate the gradient of a
     * parameter, instead of calling `add`. Requires buckets that keep their memory between steps.
     *
     * @returns undefined for a parameter whose gradient `add` would ignore or refuse
     */
    placeOf({ name }: Parameter): GradientPlace | undefined {
      const place = places.get(name)
      if (place === undefined || place.complete.has(name)) return undefined
      place.values ??= partOf(place.index, place.slot)
      return { values: place.values, adds: place.present.has(name) }
    },

    /** Reports that a gradient was written to the memory that `placeOf` returned. */
    written({ name }: Parameter, isLast: boolean) {
      arrive(name, places.get(name)!, isLast)
    },

    /** Starts all buckets before index `end` that have not started. Missing gradients are sent as zeros. */
    startUntil(end = all.length) {
      while (started < end) {
        const { index, bucket, present, complete } = all[started]!
        for (const slot of bucket.slots) {
          const { name } = slot.parameter
          if (!present.has(name)) partOf(index, slot).fill(0)
          complete.add(name)
        }
        startComplete()
      }
    },

    /**
     * Drops the gradients of this step, unless some were already sent.
     *
     * @returns whether the gradients were dropped
     */
    abandon() {
      if (started > 0) return false
      clear()
      return true
    },

    clear,
  }
}
