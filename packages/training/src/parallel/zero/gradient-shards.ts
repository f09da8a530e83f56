import type { Tensor } from '@tensorflow/tfjs-core'
import type { Parameter } from '../../model/parameter.ts'
import { Arrivals } from '../data/arrivals.ts'
import { labelOf } from '../data/buckets.ts'
import type { WireFormat } from '../data/wire.ts'
import type { ShardingGroups } from './groups.ts'
import { ownedRanges, type FlatBucket } from './layout.ts'
import type { Ledger } from './ledger.ts'
import { Reduction } from './reduction.ts'

/** A bucket, and where its gradients are. */
interface Filling {
  readonly bucket: FlatBucket
  /** This rank's share: gradients, and from `step` on the new values. */
  readonly share: Float32Array
  /** All of it: in stage 1 always there, and `share` a part of it. */
  whole: Float32Array | undefined
  reduction: Reduction | undefined
}

export interface ShardingOptions {
  readonly wire: WireFormat
  readonly deterministic: boolean
  /** Whether whole buckets stay, for the next step: stage 1. */
  readonly keepsWhole: boolean
}

/** Whole buckets that may be on their way: one that travels, and one that fills. */
const UNDER_WAY = 1

/**
 * Averages gradients over the ranks, bucket by bucket, while the backward pass goes on, so that each
 * rank gets its share.
 */
export class GradientShards {
  readonly #groups: ShardingGroups
  readonly #options: ShardingOptions
  readonly #ledger: Ledger
  readonly #fillings: readonly Filling[]
  readonly arrivals: Arrivals
  #done = 0
  #last: Reduction | undefined

  constructor(
    groups: ShardingGroups,
    buckets: readonly FlatBucket[],
    ledger: Ledger,
    options: ShardingOptions,
  ) {
    this.#groups = groups
    this.#options = options
    this.#ledger = ledger
    const { rank } = groups.shard
    this.#fillings = buckets.map((bucket) => {
      const { share, padded } = bucket
      const whole = options.keepsWhole ? ledger.alloc('gradients', padded) : undefined
      return {
        bucket,
        whole,
        share:
          whole?.subarray(rank * share, (rank + 1) * share) ?? ledger.alloc('gradients', share),
        reduction: undefined,
      }
    })
    this.arrivals = new Arrivals(buckets, (index) => this.#wholeFor(this.#fillings[index]!))
  }

  /** By bucket, this rank's share of it. */
  get shares(): readonly Float32Array[] {
    return this.#fillings.map(({ share }) => share)
  }

  /** Stage 1: the whole bucket. */
  wholeOf(index: number): Float32Array | undefined {
    return this.#fillings[index]!.whole
  }

  /** See `Arrivals.add`. */
  add(parameter: Parameter, gradient: Tensor, isLast: boolean): void {
    this.arrivals.add(parameter, gradient, isLast)
    this.#launchReady()
  }

  /** Sends off buckets that are not under way yet, up to `end`; zeros where gradients are missing. */
  launch(end = this.#fillings.length): void {
    while (this.arrivals.left < end) {
      this.arrivals.complete()
      this.#launchReady()
    }
  }

  /** Waits until there is room for another whole bucket. */
  async makeRoom(): Promise<void> {
    while (this.arrivals.left - this.#done > UNDER_WAY) {
      await this.#fillings[this.#done]!.reduction!.scattered()
      this.#reap()
    }
  }

  /** Waits until all buckets have arrived. */
  async arrived(): Promise<void> {
    for (const { reduction } of this.#fillings) await reduction!.done
    this.#reap()
  }

  /** Ends the step: by name, but for those of `without`, this rank's part of averages times `factor`. */
  take(factor: number, without: ReadonlySet<string>): Map<string, Float32Array> {
    const gradients = new Map<string, Float32Array>()
    for (const filling of this.#fillings) {
      const { bucket, share } = filling
      if (factor !== 1) for (let i = 0; i < share.length; i++) share[i]! *= factor
      filling.reduction = undefined
      for (const { parameter, from, to, at } of ownedRanges(bucket, this.#groups.shard.rank)) {
        if (without.has(parameter.name)) continue
        gradients.set(parameter.name, share.subarray(at, at + to - from))
      }
    }
    this.arrivals.clear()
    this.#done = 0
    this.#last = undefined
    return gradients
  }

  /** Gives the arena its memory back, as soon as no other rank's values come into it. */
  dispose(): void {
    for (const { whole, share, reduction } of this.#fillings) {
      const free = (): void => {
        if (whole !== undefined) this.#ledger.free('gradients', whole)
        if (!this.#options.keepsWhole) this.#ledger.free('gradients', share)
        reduction?.dispose()
      }
      if (reduction === undefined) free()
      else void reduction.done.then(free, free)
    }
  }

  #launchReady(): void {
    for (let at = this.arrivals.next(); at !== undefined; at = this.arrivals.next()) {
      const filling = this.#fillings[at]!
      filling.reduction = new Reduction(this.#groups, this.#last, {
        ...this.#options,
        whole: filling.whole!,
        share: filling.share,
        label: labelOf(filling.bucket, at),
      })
      this.#last = filling.reduction
      this.#reap()
    }
  }

  /** The memory of a bucket; where gradients come faster than they leave, this waits for room. */
  #wholeFor(filling: Filling): Float32Array {
    if (filling.whole !== undefined) return filling.whole
    this.#reap()
    while (this.arrivals.left - this.#done > UNDER_WAY) {
      if (!this.#fillings[this.#done]!.reduction!.block()) break
      this.#reap()
    }
    filling.whole = this.#ledger.borrow('gradients', filling.bucket.padded)
    filling.whole.fill(0, filling.bucket.length)
    return filling.whole
  }

  /** Frees whole buckets whose shares have arrived. */
  #reap(): void {
    while (this.#done < this.arrivals.left) {
      const filling = this.#fillings[this.#done]!
      if (!filling.reduction!.isScattered) return
      filling.reduction!.collect()
      this.#done++
      if (this.#options.keepsWhole || filling.whole === undefined) continue
      this.#ledger.giveBack('gradients', filling.whole)
      filling.whole = undefined
    }
  }
}
