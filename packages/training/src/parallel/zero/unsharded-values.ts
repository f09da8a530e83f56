import { argumentError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import { timeSpan, timeWait } from '@tsrun/distributed/record'
import { recordChain } from '../../autograd/chain.ts'
import { tensorFrom } from '../../backend/host-memory.ts'
import { ownerOfParameters } from '../../checkpoint/owners.ts'
import { replaceValue } from '../../model/parameter.ts'
import type { Replicated } from '../gradients/averaging.ts'
import type { SharedBucket } from '../gradients/buckets.ts'
import { freeAfterRun } from '../group-buffers.ts'
import type { MemoryAccounting } from './memory-accounting.ts'
import type { ReduceScatterExchange } from './reduce-scatter.ts'
import { shardsOf } from './shard-parameter.ts'
import { asModule, type Values } from './values.ts'

/** The number of buckets with new parameter values that are in flight at one time. */
const UNDER_WAY = 2

/**
 * ZeRO stages 1 and 2: every rank has all parameters. After a step, it gathers the values that
 * other ranks have updated.
 */
export function unshardedValues(
  module: Replicated,
  group: ProcessGroup,
  buckets: readonly SharedBucket[],
  gradients: ReduceScatterExchange,
  accounting: MemoryAccounting,
): Values {
  const parameters = [...new Set(module.parameters)]
  const owner = ownerOfParameters(parameters)
  const bucketsOfShares = buckets.map((bucket, i) => {
    const options = { label: `values, bucket ${i}: ${bucket.slots[0]!.parameter.name}` }
    // Stage 1: the memory of the bucket, and a prepared all-gather, are kept between steps.
    const { share, memory: kept } = gradients.kept[i]!
    const prepared = kept && group.allGatherInit(kept, share, options)
    return { bucket, share, options, kept, prepared }
  })
  const shards = bucketsOfShares.flatMap(({ bucket, share }) =>
    shardsOf(bucket, share, group, false),
  )
  for (const { value } of parameters) accounting.count('parameters', 4 * value.size)

  const start = ({ bucket, share, options, kept, prepared }: (typeof bucketsOfShares)[number]) => {
    if (prepared !== undefined) {
      prepared.start()
      const done = prepared.done()
      // Ignore the error here: the caller that awaits `done` gets it.
      done.catch(() => undefined)
      return { memory: kept!, done }
    }
    const memory = accounting.borrow('parameters', bucket.padded)
    return { memory, done: group.allGather(memory, share, options) }
  }
  return {
    shards,
    gathered: buckets.map(({ padded }) => ({ padded, times: 1 })),
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
    /**
     * Gathers the shares of all ranks, which hold new parameter values, and updates the parameters.
     * Only a few buckets are in flight at a time.
     */
    async publish() {
      for (const shard of shards) await shard.settle()
      const started: ReturnType<typeof start>[] = []
      for (const [i, { bucket, kept }] of bucketsOfShares.entries()) {
        while (started.length < Math.min(i + UNDER_WAY, buckets.length)) {
          started.push(start(bucketsOfShares[started.length]!))
        }
        const { memory, done } = started[i]!
        await timeWait(group.spans, { name: 'values' }, () => done)
        const facts = { name: 'values', bytes: 4 * bucket.length }
        timeSpan(group.spans, 'unpack', facts, () => {
          for (const { parameter, offset, length } of bucket.slots) {
            const values = memory.subarray(offset, offset + length)
            replaceValue(parameter, tensorFrom(values, parameter.shape))
          }
        })
        if (kept === undefined) accounting.giveBack('parameters', memory)
      }
    },
    /** Returns this rank's shards of the trained parameters, and all frozen parameters. */
    async pieces() {
      const trained = new Set(
        buckets.flatMap(({ slots }) => slots.map(({ parameter }) => parameter.name)),
      )
      const frozen = parameters.filter(({ name }) => !trained.has(name))
      const pieces = await ownerOfParameters(frozen).pieces()
      return [...pieces, ...shards.map((shard) => shard.piece())]
    },
    parts: () => owner.parts(new Set()),
    load: (pieces) => owner.load(pieces),
    dispose() {
      for (const shard of shards) shard.release()
      for (const { prepared } of bucketsOfShares) if (prepared !== undefined) freeAfterRun(prepared)
    },
  }
}
