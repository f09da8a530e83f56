import { tsrError } from '@tsrun/core'
import type { ProcessGroup, Work } from '@tsrun/distributed'
import type { Tensor } from '@tensorflow/tfjs-core'
import { recordModule } from '../../autograd/record.ts'
import type { RecordOptions } from '../../model/recording.ts'
import { tensorFrom } from '../../backend/host-memory.ts'
import { ownerOfParameters } from '../../checkpoint/owners.ts'
import type { Part, Piece } from '../../checkpoint/piece.ts'
import { replaceValue, type Parameter } from '../../model/parameter.ts'
import type { Replicated } from '../data/options.ts'
import type { GradientShards } from './gradient-shards.ts'
import { homeInWhole } from './homes.ts'
import { ownedRanges, type FlatBucket } from './layout.ts'
import type { Ledger } from './ledger.ts'
import { ShardParameter } from './shard-parameter.ts'
import {
  asModule,
  type Gathered,
  type GradientSink,
  type ShardedRecording,
  type Values,
} from './values.ts'

/** Buckets of new values that are on their way at one time. */
const UNDER_WAY = 2

/** Stages 1 and 2: every rank has all values, and gets those that the others have updated. */
export class WholeValues implements Values {
  readonly shards: readonly ShardParameter[]
  readonly #module: Replicated
  readonly #group: ProcessGroup
  readonly #parameters: readonly Parameter[]
  readonly #buckets: readonly FlatBucket[]
  readonly #gradients: GradientShards
  readonly #ledger: Ledger

  constructor(
    module: Replicated,
    group: ProcessGroup,
    buckets: readonly FlatBucket[],
    gradients: GradientShards,
    ledger: Ledger,
  ) {
    this.#module = module
    this.#parameters = [...new Set(module.parameters)]
    this.#group = group
    this.#buckets = buckets
    this.#gradients = gradients
    this.#ledger = ledger
    this.shards = buckets.flatMap((bucket, i) =>
      ownedRanges(bucket, group.rank).map(
        (range) => new ShardParameter(range, homeInWhole(range, gradients.shares[i]!)),
      ),
    )
    for (const { value } of this.#parameters) ledger.count('parameters', 4 * value.size)
  }

  get gathered(): readonly Gathered[] {
    return this.#buckets.map(({ padded }) => ({ padded, times: 1 }))
  }

  async record(x: Tensor, options: RecordOptions, sink: GradientSink): Promise<ShardedRecording> {
    const recording = recordModule(asModule(this.#module), x, options)
    const backward = (dy: Tensor): Tensor | undefined =>
      recording.backward(dy, (parameter, gradient) => {
        sink.take(parameter, gradient, true)
      })
    return await Promise.resolve({
      value: recording.value,
      backward: async (dy) => await Promise.resolve(backward(dy)),
      dispose: () => {
        recording.dispose()
      },
    })
  }

  checkPublished(): void {
    const stepped = this.shards.find(({ isNew }) => isNew)
    if (stepped === undefined) return
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: `the shard of ${stepped.name}`,
      value: 'one with new values that the parameter has not got',
      expected: '`await sharded.step(optimizer, gradients)` in the place of `optimizer.step`',
    })
  }

  /** Gathers the shares, which hold the new values, a few buckets at a time. */
  async publish(): Promise<void> {
    for (const shard of this.shards) await shard.settle()
    const started: { readonly whole: Float32Array; readonly work: Work }[] = []
    for (const [i, bucket] of this.#buckets.entries()) {
      while (started.length < Math.min(i + UNDER_WAY, this.#buckets.length)) {
        started.push(this.#gather(started.length))
      }
      const { whole, work } = started[i]!
      await work
      for (const { parameter, offset, length } of bucket.slots) {
        replaceValue(
          parameter,
          tensorFrom(whole.subarray(offset, offset + length), parameter.shape),
        )
      }
      if (this.#gradients.wholeOf(i) === undefined) this.#ledger.giveBack('parameters', whole)
    }
  }

  async gather(): Promise<void> {
    // they are whole
  }

  release(): void {
    // they stay whole
  }

  /** This rank's part of what is trained, and the rest, which is the same on all. */
  async pieces(): Promise<Piece[]> {
    const trained = new Set(this.#buckets.flatMap((bucket) => namesOf(bucket)))
    const frozen = this.#parameters.filter(({ name }) => !trained.has(name))
    const pieces: Piece[] = [...(await ownerOfParameters(frozen).pieces())]
    for (const shard of this.shards) pieces.push(await shard.piece())
    return pieces
  }

  parts(): readonly Part[] {
    return ownerOfParameters(this.#parameters).parts(new Set())
  }

  async load(pieces: readonly Piece[]): Promise<void> {
    await ownerOfParameters(this.#parameters).load(pieces)
  }

  dispose(): void {
    for (const shard of this.shards) shard.release()
  }

  #gather(i: number): { whole: Float32Array; work: Work } {
    const { padded, slots } = this.#buckets[i]!
    const whole = this.#gradients.wholeOf(i) ?? this.#ledger.borrow('parameters', padded)
    const label = `values, bucket ${i}: ${slots[0]!.parameter.name}`
    return { whole, work: this.#group.allGather(whole, this.#gradients.shares[i]!, { label }) }
  }
}

function namesOf({ slots }: FlatBucket): string[] {
  return slots.map(({ parameter }) => parameter.name)
}
