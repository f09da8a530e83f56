import type { ProcessGroup } from '@tsrun/distributed'
import { writeTo } from '../../backend/host-memory.ts'
import type { Parameter } from '../../model/parameter.ts'
import { homeInShare } from './homes.ts'
import { ownedRanges, type FlatBucket } from './layout.ts'
import type { Ledger } from './ledger.ts'
import { ShardParameter } from './shard-parameter.ts'
import { ShardedParameter } from './sharded-parameter.ts'
import type { UnitPlan } from './units.ts'

interface ShardedBucket {
  readonly bucket: FlatBucket
  /** This rank's share of the values. */
  readonly share: Float32Array
}

export interface UnitOptions {
  readonly group: ProcessGroup
  readonly ledger: Ledger
  /** See `ShardedParameter`. */
  readonly keepsTensors: boolean
}

/** Parameters that become whole together, while somebody holds them. */
export class Unit {
  /** This rank's parts of the parameters. */
  readonly owned: readonly ShardParameter[]
  /** Those that are trained. */
  readonly shards: readonly ShardParameter[]
  readonly #buckets: readonly ShardedBucket[]
  readonly #parameters: ReadonlyMap<string, ShardedParameter>
  readonly #options: UnitOptions
  #holders = 0
  #whole: Promise<void> | undefined
  #isGathering = false

  private constructor(
    buckets: readonly ShardedBucket[],
    trained: FlatBucket | undefined,
    options: UnitOptions,
  ) {
    this.#buckets = buckets
    this.#options = options
    const parameters = buckets.flatMap(({ bucket }) => bucket.slots.map((slot) => slot.parameter))
    this.#parameters = new Map(
      parameters.map((parameter) => [
        parameter.name,
        new ShardedParameter(parameter, options.keepsTensors),
      ]),
    )
    this.owned = buckets.flatMap(({ bucket, share }) =>
      ownedRanges(bucket, options.group.rank).map(
        (range) => new ShardParameter(range, homeInShare(range, share)),
      ),
    )
    const names = new Set(trained?.slots.map(({ parameter }) => parameter.name))
    this.shards = this.owned.filter(({ name }) => names.has(name))
  }

  /** Takes this rank's share of parameters that are whole, and frees the rest. */
  static async create({ trained, frozen }: UnitPlan, options: UnitOptions): Promise<Unit> {
    const { group, ledger } = options
    const sharded: ShardedBucket[] = []
    for (const bucket of [trained, frozen]) {
      if (bucket === undefined) continue
      const whole = ledger.alloc('parameters', bucket.padded)
      for (const { parameter, offset, length } of bucket.slots) {
        await writeTo(parameter.value, whole.subarray(offset, offset + length))
        ledger.count('parameters', 4 * length)
      }
      const share = ledger.alloc('parameters', bucket.share)
      share.set(whole.subarray(group.rank * bucket.share, (group.rank + 1) * bucket.share))
      ledger.free('parameters', whole)
      sharded.push({ bucket, share })
    }
    const unit = new Unit(sharded, trained, options)
    unit.#seal()
    return unit
  }

  get buckets(): readonly FlatBucket[] {
    return this.#buckets.map(({ bucket }) => bucket)
  }

  has({ name }: Parameter): boolean {
    return this.#parameters.has(name)
  }

  /** When the parameters are whole, for who holds them. */
  get whole(): Promise<void> | undefined {
    return this.#whole
  }

  /**
   * Makes the parameters whole until `release`; what others hold already is shared. The collectives
   * start at once, in the order of these calls on all ranks.
   */
  acquire(): Promise<void> {
    this.#holders++
    this.#whole ??= this.#gather()
    return this.#whole
  }

  release(): void {
    this.#holders--
    if (!this.#isGathering) this.#sealUnheld()
  }

  /** After a step: what is whole gets the new values. */
  async refresh(): Promise<void> {
    if (this.#whole === undefined) return
    this.#whole = this.#gather()
    await this.#whole
  }

  dispose(): void {
    for (const shard of this.owned) shard.release()
    for (const parameter of this.#parameters.values()) parameter.dispose()
    for (const { share } of this.#buckets) this.#options.ledger.free('parameters', share)
  }

  #gather(): Promise<void> {
    this.#isGathering = true
    const gathered = this.#gatherValues().finally(() => {
      this.#isGathering = false
      this.#sealUnheld()
    })
    // who waits for it hears of a failure
    gathered.catch(() => undefined)
    return gathered
  }

  #sealUnheld(): void {
    if (this.#holders > 0) return
    this.#whole = undefined
    this.#seal()
  }

  async #gatherValues(): Promise<void> {
    const { group, ledger } = this.#options
    const started = this.#buckets.map(({ bucket, share }) => {
      const whole = ledger.borrow('parameters', bucket.padded)
      const label = `values of ${bucket.slots[0]!.parameter.name}`
      return { bucket, whole, work: group.allGather(whole, share, { label }) }
    })
    for (const { bucket, whole, work } of started) {
      await work
      for (const { parameter, offset, length } of bucket.slots) {
        const sharded = this.#parameters.get(parameter.name)!
        if (!sharded.isWhole) ledger.count('parameters', sharded.bytes)
        sharded.restore(whole.subarray(offset, offset + length))
      }
      ledger.giveBack('parameters', whole)
    }
  }

  #seal(): void {
    for (const sharded of this.#parameters.values()) {
      if (sharded.isWhole) this.#options.ledger.count('parameters', -sharded.bytes)
      sharded.seal()
    }
  }
}
