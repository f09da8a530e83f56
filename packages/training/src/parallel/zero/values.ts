import { argumentError } from '@tsrun/core'
import type { PersistentOperation, ProcessGroup } from '@tsrun/distributed'
import { timeSpan, timeWait } from '@tsrun/distributed/record'
import type { Tensor } from '@tensorflow/tfjs-core'
import { recordChain } from '../../autograd/chain.ts'
import { tensorFrom } from '../../backend/host-memory.ts'
import { ownerOfParameters } from '../../checkpoint/owners.ts'
import type { PieceOwner } from '../../checkpoint/piece.ts'
import type { Module } from '../../model/module.ts'
import { replaceValue, type Parameter } from '../../model/parameter.ts'
import type { RecordOptions } from '../../model/recording.ts'
import type { Averaging, Replicated, ShardedRecording } from '../gradients/averaging.ts'
import type { SharedBucket } from '../gradients/exchange.ts'
import { freeAfterRun } from '../group-buffers.ts'
import type { MemoryAccounting } from './memory-accounting.ts'
import type { ReduceScatterExchange } from './reduce-scatter.ts'
import { shardsOf, type ShardParameter } from './shard-parameter.ts'

/** Takes the gradients that a backward pass computes. */
export type GradientSink = Pick<Averaging, 'onGradient' | 'synchronizes'>

/**
 * The parameter values of a sharded model: always unsharded (stages 1 and 2), or unsharded only while in
 * use (stage 3). Each rank saves only its shards in checkpoints, and frozen parameters that it has whole.
 */
export interface Values extends PieceOwner {
  /** This rank's shards of the trained parameters, as an optimizer sees them. */
  readonly shards: readonly ShardParameter[]
  /** The number of elements of each all-gather of a step. */
  readonly gathered: readonly number[]
  /** Runs the model forward, and records it for a backward pass. */
  record(x: Tensor, options: RecordOptions, sink: GradientSink): Promise<ShardedRecording>
  /** Checks that all updates of shards were sent. Absent in stage 3: the next gather sends all updates. */
  checkPublished?(): void
  /** Sends the values of this rank's updated shards to all ranks. */
  publish(): Promise<void>
  /** Unshards all parameters; `release` shards them again. Absent if they are always unsharded. */
  gather?(): Promise<void>
  release?(): void
  dispose(): void
}

export interface SharedValues {
  readonly bucket: SharedBucket
  readonly share: Float32Array
  /** The label of the all-gather, for error messages. */
  readonly label: string
  /** The memory of the whole bucket, and a prepared all-gather, if they are kept between steps. */
  readonly kept?:
    { readonly memory: Float32Array; readonly gather: PersistentOperation } | undefined
}

/** The number of buckets that are in flight at one time. */
const UNDER_WAY = 2

/**
 * Gathers the shares of all ranks. The first collectives start before the call returns.
 *
 * @param take - called with the values of each parameter, which are valid until it returns
 */
export async function gatherShares(
  buckets: readonly SharedValues[],
  group: ProcessGroup,
  accounting: MemoryAccounting,
  take: (parameter: Parameter, values: Float32Array) => void,
): Promise<void> {
  const start = ({ bucket, share, label, kept }: SharedValues) => {
    if (kept === undefined) {
      const memory = accounting.allocUnsafe('parameters', bucket.padded)
      return { memory, done: group.allGather(memory, share, { label }) }
    }
    kept.gather.start()
    const done = kept.gather.done()
    // Ignore the error here: the caller that awaits `done` gets it.
    done.catch(() => undefined)
    return { memory: kept.memory, done }
  }
  const started = buckets.slice(0, UNDER_WAY).map(start)
  for (const [i, { bucket, kept }] of buckets.entries()) {
    const { memory, done } = started[i]!
    await timeWait(group.spans, { name: 'values' }, () => done)
    timeSpan(group.spans, 'unpack', { name: 'values', bytes: 4 * bucket.length }, () => {
      for (const { parameter, offset, length } of bucket.slots) {
        take(parameter, memory.subarray(offset, offset + length))
      }
    })
    if (kept === undefined) accounting.free('parameters', memory)
    const next = buckets[i + UNDER_WAY]
    if (next !== undefined) started.push(start(next))
  }
}

/** Checks that the module has a `forward` method. @throws ERR_TSR_ARGUMENT */
export function asModule(module: Replicated): Module {
  if (module.whole !== undefined) return module.whole
  if ('forward' in module) return module as Module
  throw argumentError(
    'module',
    'parameters without forward',
    'a module for record(); pass the gradients of anything else to onGradient',
  )
}

/** ZeRO stages 1 and 2: every rank has all parameters. After a step it gathers the other ranks' updates. */
export function unshardedValues(
  module: Replicated,
  group: ProcessGroup,
  buckets: readonly SharedBucket[],
  gradients: ReduceScatterExchange,
  accounting: MemoryAccounting,
): Values {
  const parameters = [...new Set(module.parameters)]
  const shared = buckets.map((bucket, i): SharedValues => {
    const label = `values, bucket ${i}: ${bucket.slots[0]!.parameter.name}`
    // Stage 1: the memory of the bucket, and a prepared all-gather, are kept between steps.
    const { share, memory } = gradients.kept[i]!
    const kept = memory && { memory, gather: group.allGatherInit(memory, share, { label }) }
    return { bucket, share, label, kept }
  })
  const shards = shared.flatMap(({ bucket, share }) => shardsOf(bucket, share, group, false))
  for (const { value } of parameters) accounting.count('parameters', 4 * value.size)

  return {
    ...ownerOfParameters(parameters),
    shards,
    gathered: buckets.map(({ padded }) => padded),
    async record(x, options, sink) {
      const recording = await recordChain([asModule(module)], x, options)
      return { ...recording, backward: (dy) => recording.backward(dy, sink.onGradient) }
    },
    checkPublished() {
      const stepped = shards.find(({ isNew }) => isNew)
      if (stepped === undefined) return
      throw argumentError(
        `the shard of ${stepped.name}`,
        'one with new values that the parameter does not have',
        '`await sharded.step(optimizer, gradients)` instead of `optimizer.step`',
      )
    },
    async publish() {
      for (const shard of shards) shard.settle()
      await gatherShares(shared, group, accounting, (parameter, values) => {
        replaceValue(parameter, tensorFrom(values, parameter.shape))
      })
    },
    async pieces() {
      const trained = new Set(buckets.flatMap(({ slots }) => slots.map((slot) => slot.parameter)))
      const frozen = ownerOfParameters(parameters.filter((parameter) => !trained.has(parameter)))
      return [...(await frozen.pieces()), ...shards.map((shard) => shard.piece())]
    },
    dispose() {
      for (const shard of shards) shard.release()
      for (const { kept } of shared) if (kept !== undefined) freeAfterRun(kept.gather)
    },
  }
}
