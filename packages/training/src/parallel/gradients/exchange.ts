import { argumentError, tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { timeSpan } from '@tsrun/distributed/record'
import type { Tensor } from '@tensorflow/tfjs-core'
import { addTo, viewOf, writeTo } from '../../backend/host-memory.ts'
import type { Parameter } from '../../model/parameter.ts'
import { currentPass } from '../../model/pass.ts'
import type { GradientListener, GradientMemory, GradientPlace } from '../../model/recording.ts'
import type { Bucket, Slot } from './buckets.ts'

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
  const guarded = <T>(use: () => T): T => {
    try {
      return use()
    } catch (error) {
      throw fail(error)
    }
  }
  const isEmpty = () => currentPass()?.isEmpty === true
  const take: GradientListener = (parameter, gradient) => {
    try {
      guarded(() => {
        const { exchange, isLast } = open()
        if (!isEmpty()) exchange.add(parameter, gradient, isLast)
      })
    } finally {
      gradient.dispose()
    }
  }
  if (!keepsBuckets) return take
  const memory: GradientMemory = {
    placeOf: (parameter) =>
      guarded(() => {
        const { exchange } = open()
        return isEmpty() ? undefined : exchange.placeOf(parameter)
      }),
    written: (parameter) => {
      guarded(() => {
        const { exchange, isLast } = open()
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
      checkShape(name, shape, gradient)
      const isFirst = !present.has(name)
      const target = partOf(index, slot)
      const facts = { name, bytes: target.byteLength }
      timeSpan(group.spans, isFirst ? 'pack' : 'reduce', facts, () => {
        if (isFirst) copyAtOnce(gradient, target)
        else addTo(target, gradient)
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

function checkShape(name: string, shape: readonly number[], gradient: Tensor): void {
  const [found, expected] = [gradient.shape.join(', '), shape.join(', ')]
  if (found === expected) return
  throw argumentError(`the gradient of ${name}`, `a tensor of shape [${found}]`, `[${expected}]`)
}

function copyAtOnce(gradient: Tensor, target: Float32Array): void {
  const written = writeTo(gradient, target)
  if (written === undefined) return
  written.catch(() => undefined)
  // `viewOf` throws ERR_TSR_SYNC_READ, because the values can only be read asynchronously.
  viewOf(gradient)
}
