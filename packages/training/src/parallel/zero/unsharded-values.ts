import { argumentError } from '@tsrun/core'
import type { PersistentOperation, ProcessGroup } from '@tsrun/distributed'
import { timeSpan, timeWait } from '@tsrun/distributed/record'
import type { Tensor } from '@tensorflow/tfjs-core'
import { recordChain } from '../../autograd/chain.ts'
import { tensorFrom } from '../../backend/host-memory.ts'
import { ownerOfParameters } from '../../checkpoint/owners.ts'
import type { HeldPiece, Part, Piece } from '../../checkpoint/piece.ts'
import { replaceValue, type Parameter } from '../../model/parameter.ts'
import type { RecordOptions } from '../../model/recording.ts'
import type { Replicated } from '../gradients/averaging.ts'
import { ownedRanges, type SharedBucket } from '../gradients/buckets.ts'
import { freeAfterRun } from '../group-buffers.ts'
import type { MemoryAccounting } from './memory-accounting.ts'
import type { ReduceScatterExchange } from './reduce-scatter.ts'
import { ownerInParameter, ShardParameter } from './shard-parameter.ts'
import {
  asModule,
  type GatheredBucket,
  type GradientSink,
  type ShardedRecording,
  type Values,
} from './values.ts'

/** The number of buckets with new parameter values that are in flight at one time. */
const UNDER_WAY = 2

/**
 * ZeRO stages 1 and 2: every rank has all parameters. After a step, it gathers the values that
 * other ranks have updated.
 */
export class UnshardedValues implements Values {
  readonly shards: readonly ShardParameter[]
  readonly #module: Replicated
  readonly #group: ProcessGroup
  readonly #parameters: readonly Parameter[]
  readonly #buckets: readonly SharedBucket[]
  readonly #gradients: ReduceScatterExchange
  readonly #accounting: MemoryAccounting
  /** Stage 1: prepared all-gathers of the buckets, whose memory is kept between steps. */
  readonly #gathers: readonly (PersistentOperation | undefined)[]

  /**
   * Takes an unsharded module.
   *
   * @param gradients - the gradient exchange; new parameter values are sent from and received into
   *   its buckets
   */
  constructor(
    module: Replicated,
    group: ProcessGroup,
    buckets: readonly SharedBucket[],
    gradients: ReduceScatterExchange,
    accounting: MemoryAccounting,
  ) {
    this.#module = module
    this.#parameters = [...new Set(module.parameters)]
    this.#group = group
    this.#buckets = buckets
    this.#gradients = gradients
    this.#accounting = accounting
    this.shards = buckets.flatMap((bucket, i) =>
      ownedRanges(bucket, group.rank).map(
        (range) => new ShardParameter(range, ownerInParameter(range, gradients.shares[i]!, group)),
      ),
    )
    this.#gathers = buckets.map((bucket, i) => {
      const memory = gradients.keptMemoryOf(i)
      return memory && group.allGatherInit(memory, gradients.shares[i]!, gatherOptions(bucket, i))
    })
    for (const { value } of this.#parameters) accounting.count('parameters', 4 * value.size)
  }

  get gathered(): readonly GatheredBucket[] {
    return this.#buckets.map(({ padded }) => ({ padded, times: 1 }))
  }

  async record(x: Tensor, options: RecordOptions, sink: GradientSink): Promise<ShardedRecording> {
    const recording = await recordChain([asModule(this.#module)], x, options)
    return {
      value: recording.value,
      backward: async (dy) => await recording.backward(dy, sink.onGradient),
      dispose() {
        recording.dispose()
      },
    }
  }

  checkPublished(): void {
    const stepped = this.shards.find(({ isNew }) => isNew)
    if (stepped === undefined) return
    throw argumentError(
      `the shard of ${stepped.name}`,
      'one with new values that the parameter does not have',
      '`await sharded.step(optimizer, gradients)` instead of `optimizer.step`',
    )
  }

  /**
   * Gathers the shares of all ranks, which hold new parameter values, and updates the parameters.
   * Only a few buckets are in flight at a time.
   */
  async publish(): Promise<void> {
    for (const shard of this.shards) await shard.settle()
    const started: Gathering[] = []
    for (const [i, bucket] of this.#buckets.entries()) {
      while (started.length < Math.min(i + UNDER_WAY, this.#buckets.length)) {
        started.push(this.#gather(started.length))
      }
      const { memory, done } = started[i]!
      await timeWait(this.#group.spans, { name: 'values' }, () => done)
      const facts = { name: 'values', bytes: 4 * bucket.length }
      timeSpan(this.#group.spans, 'unpack', facts, () => {
        for (const { parameter, offset, length } of bucket.slots) {
          const values = memory.subarray(offset, offset + length)
          replaceValue(parameter, tensorFrom(values, parameter.shape))
        }
      })
      if (this.#gradients.keptMemoryOf(i) === undefined) {
        this.#accounting.giveBack('parameters', memory)
      }
    }
  }

  async gather(): Promise<void> {
    // Nothing to do: in stages 1 and 2 parameters are always unsharded.
  }

  release(): void {
    // Nothing to do: in stages 1 and 2 parameters are always unsharded.
  }

  /** Returns this rank's shards of the trained parameters, and all frozen parameters. */
  async pieces(): Promise<HeldPiece[]> {
    const trained = new Set(
      this.#buckets.flatMap(({ slots }) => slots.map(({ parameter }) => parameter.name)),
    )
    const frozen = this.#parameters.filter(({ name }) => !trained.has(name))
    const pieces = await ownerOfParameters(frozen).pieces()
    return [...pieces, ...this.shards.map((shard) => shard.piece())]
  }

  parts(): readonly Part[] {
    return ownerOfParameters(this.#parameters).parts(new Set())
  }

  async load(pieces: readonly Piece[]): Promise<void> {
    await ownerOfParameters(this.#parameters).load(pieces)
  }

  dispose(): void {
    for (const shard of this.shards) shard.release()
    for (const gather of this.#gathers) if (gather !== undefined) freeAfterRun(gather)
  }

  #gather(i: number): Gathering {
    const bucket = this.#buckets[i]!
    const gather = this.#gathers[i]
    if (gather !== undefined) {
      gather.start()
      const done = gather.done()
      // Ignore the error here: the caller that awaits `done` gets it.
      done.catch(() => undefined)
      return { memory: this.#gradients.keptMemoryOf(i)!, done }
    }
    const memory = this.#accounting.borrow('parameters', bucket.padded)
    const share = this.#gradients.shares[i]!
    return { memory, done: this.#group.allGather(memory, share, gatherOptions(bucket, i)) }
  }
}

interface Gathering {
  readonly memory: Float32Array
  readonly done: PromiseLike<void>
}

function gatherOptions({ slots }: SharedBucket, index: number): { readonly label: string } {
  return { label: `values, bucket ${index}: ${slots[0]!.parameter.name}` }
}
