import type { Work } from '@tsrun/distributed'
import { countRanks } from '../data/step-totals.ts'
import type { WireFormat } from '../data/wire.ts'
import { axesOf, type ShardingGroups } from './groups.ts'

export interface ReductionOptions {
  /** Of `share` times as many values as ranks share the state. */
  readonly whole: Float32Array
  /** Gets this rank's part of the average; may be that part of `whole`. */
  readonly share: Float32Array
  readonly wire: WireFormat
  readonly deterministic: boolean
  readonly label: string
}

/** One bucket on its way: a reduce-scatter, then an all-reduce of the share where there are replicas. */
export class Reduction {
  /** `share` is there. */
  readonly done: Promise<void>
  readonly #scatter: Work
  readonly #groups: ShardingGroups
  readonly #options: ReductionOptions
  /** What travels in 16 bits. */
  #encoded: Uint16Array | undefined

  /** @param previous - the bucket before: replicas must take them in one order */
  constructor(groups: ShardingGroups, previous: Reduction | undefined, options: ReductionOptions) {
    const { whole, share, wire, deterministic, label } = options
    const { shard } = groups
    this.#groups = groups
    this.#options = options
    if (wire === 'float32') {
      this.#scatter = shard.reduceScatter(share, whole, { op: 'avg', deterministic, label })
    } else {
      this.#encoded = shard.alloc(wire, whole.length)
      // divided before they are summed: the largest float16 is 65504
      shard.convert(this.#encoded, whole, 1 / countRanks(axesOf(groups)))
      this.#scatter = shard.reduceScatter(this.#part, this.#encoded, {
        dtype: wire,
        deterministic,
        label,
      })
    }
    this.done = this.#finish(previous)
    // who waits for it hears of a failure
    this.done.catch(() => undefined)
  }

  /** Whether `whole` is free again. */
  get isScattered(): boolean {
    return this.#scatter.isCompleted()
  }

  async scattered(): Promise<void> {
    await this.#scatter
  }

  /** Blocks until `whole` is free; false where that cannot be done. */
  block(): boolean {
    try {
      this.#scatter.wait()
      return true
    } catch (error) {
      if ((error as { code?: unknown }).code === 'ERR_TSR_SYNC_UNSUPPORTED') return false
      throw error
    }
  }

  /** Frees what travelled, once that has arrived and no replica waits for it. */
  collect(): void {
    if (this.#groups.replicate === undefined) this.#decode()
  }

  async #finish(previous: Reduction | undefined): Promise<void> {
    await this.#scatter
    const { replicate } = this.#groups
    if (replicate !== undefined) {
      await previous?.done
      const { share, wire, deterministic, label } = this.#options
      if (this.#encoded === undefined) {
        await replicate.allReduce(share, { op: 'avg', deterministic, label })
      } else await replicate.allReduce(this.#part, { dtype: wire, deterministic, label })
    }
    this.#decode()
  }

  /** This rank's part of what travels in 16 bits. */
  get #part(): Uint16Array {
    const { rank } = this.#groups.shard
    const { length } = this.#options.share
    return this.#encoded!.subarray(rank * length, (rank + 1) * length)
  }

  /** Frees what a failed operation has left. */
  dispose(): void {
    if (this.#encoded !== undefined) this.#groups.shard.free(this.#encoded)
    this.#encoded = undefined
  }

  #decode(): void {
    if (this.#encoded === undefined) return
    this.#groups.shard.convert(this.#options.share, this.#part)
    this.dispose()
  }
}
