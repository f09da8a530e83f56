import { tsrError } from '@tsrun/core'
import type { Tensor } from '@tensorflow/tfjs-core'
import { addTo, writeTo } from '../../backend/host-memory.ts'
import type { Parameter } from '../../nn/parameter.ts'
import type { Slot } from '../data/buckets.ts'
import type { WireFormat } from '../data/wire.ts'
import type { ShardingGroups } from './groups.ts'
import { ownedRanges, type FlatBucket } from './layout.ts'
import type { Ledger } from './ledger.ts'
import { Reduction } from './reduction.ts'

/** A bucket, and what is known of its gradients in this step. */
interface Filling {
  readonly bucket: FlatBucket
  readonly index: number
  /** This rank's share: gradients, and from `step` on the new values. */
  readonly share: Float32Array
  /** All of it: in stage 1 always there, and `share` a part of it. */
  whole: Float32Array | undefined
  /** Names of parameters that have a gradient, of this or of an accumulated pass. */
  readonly filled: Set<string>
  /** Those whose gradient of the last pass is there. */
  readonly ready: Set<string>
  reduction: Reduction | undefined
}

export interface ShardingOptions {
  readonly wire: WireFormat
  readonly deterministic: boolean
  /** Whether what travels is averaged, and not summed: float32 among the sharing ranks only. */
  readonly averages: boolean
  /** Whether whole buckets stay, for the next step: stage 1. */
  readonly keepsWhole: boolean
}

/** Whole buckets that may be on their way: one that travels, and one that fills. */
const UNDER_WAY = 1

/**
 * Sums gradients over the ranks, bucket by bucket, while the backward pass goes on, so that each
 * rank gets its share. Every rank starts its buckets in the same order, whatever the order of its
 * gradients.
 */
export class GradientShards {
  readonly #groups: ShardingGroups
  readonly #options: ShardingOptions
  readonly #ledger: Ledger
  readonly #fillings: readonly Filling[]
  readonly #places = new Map<string, { readonly filling: Filling; readonly slot: Slot }>()
  #launched = 0
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
    this.#fillings = buckets.map((bucket, index) => {
      const { share, padded } = bucket
      const whole = options.keepsWhole ? ledger.alloc('gradients', padded) : undefined
      return {
        bucket,
        index,
        whole,
        share:
          whole?.subarray(rank * share, (rank + 1) * share) ?? ledger.alloc('gradients', share),
        filled: new Set(),
        ready: new Set(),
        reduction: undefined,
      }
    })
    for (const filling of this.#fillings) {
      for (const slot of filling.bucket.slots) {
        this.#places.set(slot.parameter.name, { filling, slot })
      }
    }
  }

  /** By bucket, this rank's share of it. */
  get shares(): readonly Float32Array[] {
    return this.#fillings.map(({ share }) => share)
  }

  /** Stage 1: the whole bucket. */
  wholeOf(index: number): Float32Array | undefined {
    return this.#fillings[index]!.whole
  }

  /**
   * Adds a gradient to what there is, and disposes it.
   *
   * @param isLast - no other pass adds to it in this step
   */
  add(parameter: Parameter, gradient: Tensor, isLast: boolean): void {
    const place = this.#places.get(parameter.name)
    try {
      if (place === undefined) return
      const { filling, slot } = place
      if (filling.ready.has(parameter.name)) {
        throw tsrError('ERR_TSR_GRADIENT_TWICE', { parameter: parameter.name })
      }
      const { offset, length } = slot
      const target = this.#wholeFor(filling).subarray(offset, offset + length)
      if (filling.filled.has(parameter.name)) addTo(target, gradient)
      else void writeTo(gradient, target)
      filling.filled.add(parameter.name)
      if (!isLast) return
      filling.ready.add(parameter.name)
    } finally {
      gradient.dispose()
    }
    this.#launchReady()
  }

  /** The parameters that have got no gradient in this step. */
  get missing(): string[] {
    return this.#fillings.flatMap(({ bucket, filled }) =>
      bucket.slots.map(({ parameter }) => parameter.name).filter((name) => !filled.has(name)),
    )
  }

  /** Sends off buckets that are not under way yet, up to `end`; zeros where gradients are missing. */
  launch(end = this.#fillings.length): void {
    for (const filling of this.#fillings.slice(this.#launched, end)) {
      const whole = this.#wholeFor(filling)
      for (const { parameter, offset, length } of filling.bucket.slots) {
        if (!filling.filled.has(parameter.name)) whole.fill(0, offset, offset + length)
        filling.ready.add(parameter.name)
      }
    }
    this.#launchReady()
  }

  /** Waits until there is room for another whole bucket. */
  async makeRoom(): Promise<void> {
    while (this.#launched - this.#done > UNDER_WAY) {
      await this.#fillings[this.#done]!.reduction!.scattered()
      this.#reap()
    }
  }

  /** Waits for all buckets: by name, this rank's part of the gradients, times `factor`. */
  async take(factor: number): Promise<Map<string, Float32Array>> {
    for (const { reduction } of this.#fillings) await reduction!.done
    this.#reap()
    const gradients = new Map<string, Float32Array>()
    for (const filling of this.#fillings) {
      const { bucket, share } = filling
      if (factor !== 1) for (let i = 0; i < share.length; i++) share[i]! *= factor
      filling.filled.clear()
      filling.ready.clear()
      filling.reduction = undefined
      for (const { parameter, from, to, at } of ownedRanges(bucket, this.#groups.shard.rank)) {
        gradients.set(parameter.name, share.subarray(at, at + to - from))
      }
    }
    this.#launched = 0
    this.#done = 0
    this.#last = undefined
    return gradients
  }

  /** Gives the arena its memory back. */
  dispose(): void {
    for (const { whole, share } of this.#fillings) {
      if (whole !== undefined) this.#ledger.free('gradients', whole)
      if (!this.#options.keepsWhole) this.#ledger.free('gradients', share)
    }
  }

  #launchReady(): void {
    for (;;) {
      const filling = this.#fillings[this.#launched]
      if (filling === undefined || filling.ready.size < filling.bucket.slots.length) return
      filling.reduction = new Reduction(this.#groups, this.#last, {
        ...this.#options,
        whole: filling.whole!,
        share: filling.share,
        label: labelOf(filling),
      })
      this.#last = filling.reduction
      this.#launched++
      this.#reap()
    }
  }

  /** The memory of a bucket; where gradients come faster than they leave, this waits for room. */
  #wholeFor(filling: Filling): Float32Array {
    if (filling.whole !== undefined) return filling.whole
    this.#reap()
    while (this.#launched - this.#done > UNDER_WAY) {
      if (!this.#fillings[this.#done]!.reduction!.block()) break
      this.#reap()
    }
    filling.whole = this.#ledger.borrow('gradients', filling.bucket.padded)
    filling.whole.fill(0, filling.bucket.length)
    return filling.whole
  }

  /** Frees whole buckets whose shares have arrived. */
  #reap(): void {
    while (this.#done < this.#launched) {
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

function labelOf({ bucket: { slots }, index }: Filling): string {
  const more = slots.length > 1 ? ` to ${slots.at(-1)!.parameter.name}` : ''
  return `gradients, bucket ${index}: ${slots[0]!.parameter.name}${more}`
}
