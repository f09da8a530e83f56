import type { PersistentOperation } from '@tsrun/distributed'
import { timeSpan, timeWait } from '@tsrun/distributed/record'
import { fillBuckets, labelOf, ownedRanges, type SharedBucket } from '../gradients/exchange.ts'
import type { GradientOptions } from '../gradients/options.ts'
import { countRanks } from '../gradients/replica.ts'
import type { MemoryAccounting } from './memory-accounting.ts'
import { axesOf, type ShardingGroups, type ShardingOptions } from './options.ts'

interface Filling {
  readonly bucket: SharedBucket
  readonly label: string
  /**
   * This rank's share of the bucket. It holds gradients; in stages 1 and 2, `step` replaces them
   * with new parameter values.
   */
  readonly share: Float32Array
  /** The memory of the whole bucket. In stage 1 it stays allocated and contains `share`. */
  memory: Float32Array | undefined
  /** The prepared reduce-scatter; only in stage 1 with float32 as wire format. */
  readonly scatter: PersistentOperation | undefined
  exchange: BucketExchange | undefined
}

/** The number of whole buckets that may be in flight while another bucket is filled. */
const UNDER_WAY = 1

export type ReduceScatterExchange = ReturnType<typeof reduceScatterExchange>

/** Averages gradients with reduce-scatter: each rank gets its share of them. */
export function reduceScatterExchange(
  groups: ShardingGroups,
  buckets: readonly SharedBucket[],
  accounting: MemoryAccounting,
  options: ShardingOptions,
) {
  const { wire, deterministic, stage } = options
  const keepsBuckets = stage === 1
  const { shard } = groups
  const fillings = buckets.map((bucket, index): Filling => {
    const label = labelOf(bucket, index)
    const { share: length, padded } = bucket
    const memory = keepsBuckets ? accounting.alloc('gradients', padded) : undefined
    const share =
      memory?.subarray(shard.rank * length, (shard.rank + 1) * length) ??
      accounting.alloc('gradients', length)
    const scatter =
      memory !== undefined && wire === 'float32'
        ? shard.reduceScatterInit(share, memory, { op: 'avg', deterministic, label })
        : undefined
    return { bucket, label, memory, share, scatter, exchange: undefined }
  })
  /** The number of buckets whose reduce-scatter has completed, so that their memory is free again. */
  let scattered = 0

  /** Allocates memory for a bucket. Blocks while too many buckets are in flight. */
  const memoryOf = (index: number) => {
    const filling = fillings[index]!
    if (filling.memory !== undefined) return filling.memory
    reap()
    while (isFull() && fillings[scattered]!.exchange!.block()) reap()
    filling.memory = accounting.allocUnsafe('gradients', filling.bucket.padded)
    filling.memory.fill(0, filling.bucket.length)
    return filling.memory
  }
  const start = (index: number) => {
    const filling = fillings[index]!
    filling.exchange = exchangeBucket(groups, fillings[index - 1]?.exchange, filling, options)
    reap()
  }
  const filled = fillBuckets(buckets, shard, memoryOf, start)
  /** Whether another bucket must wait because too many buckets are in flight. */
  const isFull = () => filled.started() - scattered > UNDER_WAY
  /** Frees the memory of each bucket whose reduce-scatter has completed. */
  const reap = () => {
    while (scattered < filled.started()) {
      const filling = fillings[scattered]!
      if (!filling.exchange!.isScattered()) return
      filling.exchange!.collect()
      scattered++
      if (keepsBuckets || filling.memory === undefined) continue
      accounting.free('gradients', filling.memory)
      filling.memory = undefined
    }
  }
  const finished = async () => {
    await timeWait(shard.spans, { name: 'gradients' }, async () => {
      for (const { exchange } of fillings) await exchange!.done
    })
    reap()
  }
  return {
    ...filled,

    /** The memory of each bucket. Between steps it can hold parameter values. */
    kept: fillings.map(({ share, memory }) => ({ share, memory })),

    async makeRoom() {
      while (isFull()) {
        await fillings[scattered]!.exchange!.scattered
        reap()
      }
    },

    /**
     * Waits for the all-reduces between replicas, which start at different times on different ranks. No other
     * collective may come between them.
     */
    async beforeTotals() {
      if (groups.replicate !== undefined) await finished()
    },

    finished,

    /**
     * Ends the step.
     *
     * @returns this rank's shares of the averages times `factor`, by parameter name, except for the names
     *   in `without`
     */
    take(factor: number, without: ReadonlySet<string>) {
      const gradients = new Map<string, Float32Array>()
      timeSpan(shard.spans, 'reduce', { name: 'averages' }, () => {
        for (const filling of fillings) {
          const { bucket, share } = filling
          if (factor !== 1) shard.convert(share, share, factor)
          filling.exchange = undefined
          for (const { parameter, from, to, at } of ownedRanges(bucket, shard.rank)) {
            if (without.has(parameter.name)) continue
            gradients.set(parameter.name, share.subarray(at, at + to - from))
          }
        }
      })
      filled.clear()
      scattered = 0
      return gradients
    },

    /** Frees the buckets as soon as no collective uses them. */
    dispose() {
      for (const { memory, share, scatter, exchange } of fillings) {
        const free = () => {
          scatter?.free()
          if (memory !== undefined) accounting.free('gradients', memory)
          if (!keepsBuckets) accounting.free('gradients', share)
          exchange?.dispose()
        }
        if (exchange === undefined) free()
        else void exchange.done.then(free, free)
      }
    },
  }
}

type BucketExchange = ReturnType<typeof exchangeBucket>

/**
 * Averages one bucket: a reduce-scatter among the ranks of a replica, then an all-reduce between replicas.
 *
 * @param previous - the exchange of the previous bucket, which must end before the all-reduce starts
 */
function exchangeBucket(
  groups: ShardingGroups,
  previous: { readonly done: Promise<void> } | undefined,
  { memory: filled, share, scatter, label }: Filling,
  { wire, deterministic }: GradientOptions,
) {
  const { shard, replicate } = groups
  const memory = filled!
  /** The bucket in the 16-bit wire format; undefined if the wire format is float32. */
  let encoded = wire === 'float32' ? undefined : shard.allocUnsafe(wire, memory.length)
  /** This rank's share of the bucket in the wire format. */
  const sent =
    encoded?.subarray(shard.rank * share.length, (shard.rank + 1) * share.length) ?? share
  const options = { op: encoded === undefined ? 'avg' : 'sum', deterministic, label } as const

  /** Frees the bucket in the 16-bit wire format. */
  const dispose = () => {
    if (encoded !== undefined) shard.free(encoded)
    encoded = undefined
  }
  const decode = () => {
    if (encoded === undefined) return
    timeSpan(shard.spans, 'reduce', { name: 'from 16 bits', bytes: share.byteLength }, () => {
      shard.convert(share, sent)
    })
    dispose()
  }
  if (encoded !== undefined) {
    const whole = encoded
    // Divide before summing, because a sum may exceed 65504, the largest float16.
    timeSpan(shard.spans, 'reduce', { name: 'to 16 bits', bytes: memory.byteLength }, () => {
      shard.convert(whole, memory, 1 / countRanks(axesOf(groups)))
    })
  }
  scatter?.start()
  const operation = scatter ?? shard.reduceScatter(sent, encoded ?? memory, options)
  // Make only one promise per operation, because an error is reported once.
  const scattered = scatter?.done() ?? Promise.resolve(operation)
  // Ignore the error here: the caller that awaits `done` gets it.
  scattered.catch(() => undefined)
  const finish = async () => {
    await scattered
    if (replicate !== undefined) {
      await previous?.done
      await replicate.allReduce(sent, options)
    }
    decode()
  }
  const done = finish()
  // Ignore the error here: the caller that awaits `done` gets it.
  done.catch(() => undefined)
  return {
    /** Resolves when `share` contains the averages. */
    done,
    /** Resolves when the reduce-scatter has completed, so that `memory` is free again. */
    scattered,
    isScattered: () => operation.isCompleted(),

    /** Blocks until `memory` is free again. Returns false at once on a thread that cannot block. */
    block() {
      try {
        operation.wait()
        return true
      } catch (error) {
        if ((error as { code?: unknown }).code === 'ERR_TSR_SYNC_UNSUPPORTED') return false
        throw error
      }
    },

    /** Decodes a 16-bit share after the reduce-scatter, unless an all-reduce between replicas comes first. */
    collect() {
      if (replicate === undefined) decode()
    },
    dispose,
  }
}
