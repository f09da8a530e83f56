import { argumentError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
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
import { asModule, gatherShares, type SharedValues, type Values } from './values.ts'

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
    /** Gathers the shares of all ranks, which hold new parameter values, and updates the parameters. */
    async publish() {
      for (const shard of shards) await shard.settle()
      await gatherShares(shared, group, accounting, (parameter, values) => {
        replaceValue(parameter, tensorFrom(values, parameter.shape))
      })
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
      for (const { kept } of shared) if (kept !== undefined) freeAfterRun(kept.gather)
    },
  }
}
