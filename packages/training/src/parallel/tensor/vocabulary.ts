import { scopedTensorFrom } from '../../backend/host-memory.ts'
import { ofKind, type Module } from '../../model/module.ts'
import type { Parameter } from '../../model/parameter.ts'
import { markPartial } from '../../nn/cross-entropy.ts'
import { checkIds, lookUp, type Embedding, type Head } from '../../nn/embedding.ts'
import { onRows } from '../../nn/linear.ts'
import { tf, type Tensor } from '../../tfjs/tfjs.ts'
import type { LayerContext } from './linear-layers.ts'
import { copyToRanks, gatherSequence, scatterSequence, sumOverRanks } from './operations.ts'
import { inOnePiece } from './record-segments.ts'
import { shardOf } from './sharding.ts'

/** Options of `vocabParallel`. */
export interface VocabParallelOptions {
  /**
   * Whether to use sequence parallelism: an embedding returns this rank's part of each sequence, and an
   * output head takes such a part. Default false.
   */
  readonly sequence?: boolean
}

/**
 * A vocabulary parallel embedding: each rank has the table rows of some tokens. The numbers of rows
 * differ by at most one. A rank looks up zeros for tokens of other ranks, and the results are summed over
 * the ranks.
 */
export function vocabParallelEmbedding(
  { weight: table }: Embedding,
  { group, name }: LayerContext,
  { sequence }: Required<VocabParallelOptions>,
): Module {
  const weight = shardOf(table, group, 0, { isUneven: true })
  const leave = sequence ? scatterSequence : sumOverRanks
  const module: Module = {
    parameters: [weight],
    segments: () => inOnePiece(module, name),
    /** @param ids - int32 [batch, length], the same on all ranks */
    forward(ids) {
      checkIds(ids, weight)
      const { own, here } = ownIds(ids, weight)
      return leave(tf.mul(lookUp(weight.value, own), here), group, `${name}: output`)
    },
  }
  return module
}

/**
 * A vocabulary parallel output head: each rank computes the scores of its tokens, [..., tokens of
 * this rank].
 */
export interface VocabParallelHead extends Module {
  readonly kind: 'vocab-parallel-head'
  /**
   * Gathers the scores of the whole vocabulary, the same on all ranks. Used for generation; losses
   * use the parts directly.
   *
   * @param part - the output of `forward` at one position: [tokens of this rank]
   */
  wholeScores(part: Float32Array): Promise<Float32Array>
}

export function vocabParallelHead(
  { weight: table }: Head,
  { group, name }: LayerContext,
  { sequence }: Required<VocabParallelOptions>,
): VocabParallelHead {
  const weight = shardOf(table, group, 0, { isUneven: true })
  const enter = sequence ? gatherSequence : copyToRanks
  const module: VocabParallelHead = {
    kind: 'vocab-parallel-head',
    parameters: [weight],
    segments: () => inOnePiece(module, name),
    forward(x) {
      const whole = enter(x, group, `${name}: input`)
      return markPartial(onRows(whole, (rows) => tf.matMul(rows, weight.value, false, true)))
    },
    async wholeScores(part) {
      const { shard, shape } = weight
      const all = group.alloc('float32', shard?.shape[0] ?? shape[0]!)
      try {
        // Use all-reduce instead of all-gather, because the parts may have different sizes. Adding
        // zeros is exact.
        all.fill(0).set(part, shard?.offset ?? 0)
        await group.allReduce(all, { label: `${name}: scores` })
        return all.slice()
      } finally {
        group.free(all)
      }
    },
  }
  return module
}

/**
 * Returns row indices in this rank's part of the table, and a mask: 1 for tokens of this rank, 0
 * for others.
 */
function ownIds(ids: Tensor, { shape, shard }: Parameter) {
  const offset = shard?.offset ?? 0
  const places = Int32Array.from(ids.dataSync<'int32'>(), (id) => id - offset)
  const isHere = (place: number) => place >= 0 && place < shape[0]!
  const own = scopedTensorFrom(
    places.map((place) => (isHere(place) ? place : 0)),
    ids.shape,
    'int32',
  )
  const here = scopedTensorFrom(
    Float32Array.from(places, (place) => Number(isHere(place))),
    [...ids.shape, 1],
  )
  return { own, here }
}

/** Whether a module is an output head whose vocabulary the ranks share. */
export const isVocabParallelHead = ofKind<VocabParallelHead>('vocab-parallel-head')
