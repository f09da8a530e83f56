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
 * A *bucket* holds several gradients, one after the other, which are sent together. With ZeRO, a bucket is
 * padded with zeros and divided into equal *shares*, one per rank. A parameter that crosses the border of two
 * shares is owned by both ranks.
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
 * Divides parameters into buckets, in the order in which their gradients are expected. A gradient that is
 * larger than a bucket gets its own bucket. If the second bucket would be small, it is merged into the first.
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

export function padBucket(bucket: Bucket, ranks: number): SharedBucket {
  const share = Math.ceil(bucket.length / ranks)
  return { ...bucket, share, padded: share * ranks }
}

/**
 * Returns the ranges [from, to) of the bucket's parameters that a rank owns. `at` is the offset of a range
 * in the rank's share, in elements.
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

/** The place of a gradient in the buckets, and its state in this step. */
interface Place {
  /** The index of its bucket. */
  readonly index: number
  readonly slot: Slot
  /** Whether there is a gradient in this step. Later passes add to it until it is complete. */
  isPresent: boolean
  isComplete: boolean
  /** The part of the bucket's memory that holds the gradient; set by `placeOf`. */
  values: Float32Array | undefined
}

export interface GradientExchange extends ReturnType<typeof fillBuckets> {
  /** Completes all work that must precede another collective over the same ranks. */
  beforeTotals(): Promise<void>
  /** Waits until the exchanges of all buckets have completed. */
  finished(): Promise<void>
}

/**
 * Creates the gradient listener of a replica.
 *
 * @param open - checks that the replica may take gradients now. Returns the exchange of the step, and whether
 *   the pass is the last one of the step
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
 * Fills buckets with the gradients of a step, and starts to exchange each bucket that is complete. Every rank
 * starts them in the same order, even if gradients are computed in different orders.
 */
export function fillBuckets(
  buckets: readonly Bucket[],
  group: ProcessGroup,
  memoryOf: (index: number) => Float32Array,
  start: (index: number) => void,
) {
  const empty = { isPresent: false, isComplete: false }
  const all = buckets.map(({ slots }, index) =>
    slots.map((slot): Place => ({ index, slot, values: undefined, ...empty })),
  )
  const places = new Map(all.flat().map((place) => [place.slot.parameter.name, place]))
  let started = 0
  let order: string[] = []

  const partOf = ({ index, slot: { offset, length } }: Place) =>
    memoryOf(index).subarray(offset, offset + length)
  const startComplete = () => {
    while (all[started]?.every(({ isComplete }) => isComplete)) start(started++)
  }
  const arrive = (place: Place, isLast: boolean) => {
    place.isPresent = true
    if (!isLast) return
    place.isComplete = true
    order.push(place.slot.parameter.name)
    startComplete()
  }
  const clear = () => {
    for (const place of places.values()) Object.assign(place, empty)
    started = 0
    order = []
  }
  return {
    started: () => started,

    /** Names of parameters in the order in which their gradients became complete. */
    order: () => order,

    /** The names of all parameters, bucket by bucket. */
    names: () => [...places.keys()],

    /** For each parameter in `names`: whether it has a gradient in this step. */
    used: () => Array.from(places.values(), ({ isPresent }) => isPresent),

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
      if (place.isComplete) throw tsrError('ERR_TSR_GRADIENT_TWICE', { parameter: name })
      checkShape(`the gradient of ${name}`, gradient, shape)
      const isFirst = !place.isPresent
      const target = partOf(place)
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
      arrive(place, isLast)
    },

    /**
     * Returns the memory into which a backward pass can write a gradient instead of calling `add`; undefined
     * if `add` would ignore or refuse it. Requires buckets that keep their memory between steps.
     */
    placeOf({ name }: Parameter): GradientPlace | undefined {
      const place = places.get(name)
      if (place === undefined || place.isComplete) return undefined
      place.values ??= partOf(place)
      return { values: place.values, adds: place.isPresent }
    },

    /** Reports that a gradient was written to the memory that `placeOf` returned. */
    written({ name }: Parameter, isLast: boolean) {
      arrive(places.get(name)!, isLast)
    },

    /** Starts all buckets before index `end` that have not started. Missing gradients are sent as zeros. */
    startUntil(end = all.length) {
      while (started < end) {
        for (const place of all[started]!) {
          if (!place.isPresent) partOf(place).fill(0)
          place.isComplete = true
        }
        startComplete()
      }
    },

    /** Drops the gradients of this step, unless some were already sent. @returns whether they were dropped */
    abandon() {
      if (started > 0) return false
      clear()
      return true
    },

    clear,
  }
}
