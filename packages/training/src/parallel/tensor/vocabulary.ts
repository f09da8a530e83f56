import type { Tensor } from '@tensorflow/tfjs-core'
import type { Segment } from '../../model/segment.ts'
import { scopedTensorFrom } from '../../backend/host-memory.ts'
import { tf } from '../../backend/tfjs.ts'
import { checkIds, lookUp, type Embedding } from '../../nn/embedding.ts'
import type { Head } from '../../nn/head.ts'
import type { Module } from '../../model/module.ts'
import type { Parameter } from '../../model/parameter.ts'
import { markPartial } from '../../nn/partial-scores.ts'
import { onRows } from '../../nn/project.ts'
import type { SharedPlace } from './layers.ts'
import { copyToRanks, gatherSequence, scatterSequence, sumOverRanks } from './operations.ts'
import { inOnePiece } from './segments.ts'
import { shardOf } from './shard.ts'

export interface VocabParallelOptions {
  /**
   * Whether a rank has a part of each sequence only between the layers: behind an embedding, and in
   * front of a head. Default false.
   */
  readonly sequence?: boolean
}

/**
 * Each rank has some rows of the table, as many as the others or one more; a token that it has not is zero there, and the sum is right.
 */
export class VocabParallelEmbedding implements Module {
  readonly parameters: readonly [weight: Parameter]
  readonly #place: SharedPlace
  readonly #leave: typeof sumOverRanks

  constructor(
    { weight }: Embedding,
    place: SharedPlace,
    { sequence = false }: VocabParallelOptions,
  ) {
    this.#place = place
    this.#leave = sequence ? scatterSequence : sumOverRanks
    this.parameters = [shardOf(weight, place.group, 0, { isUneven: true })]
  }

  segments(): readonly Segment[] {
    return inOnePiece(this, this.#place.name)
  }

  /** @param ids - int32 [batch, length], the same on all ranks */
  forward(ids: Tensor): Tensor {
    const [weight] = this.parameters
    checkIds(ids, weight)
    const { own, here } = ownIds(ids, weight)
    const { group, name } = this.#place
    return this.#leave(tf.mul(lookUp(weight.value, own), here), group, `${name}: output`)
  }
}

/** Each rank makes the scores of some of the vocabulary: [..., its part of the vocabulary]. */
export class VocabParallelHead implements Module {
  readonly parameters: readonly [weight: Parameter]
  readonly #place: SharedPlace
  readonly #enter: typeof copyToRanks

  constructor({ weight }: Head, place: SharedPlace, { sequence = false }: VocabParallelOptions) {
    this.#place = place
    this.#enter = sequence ? gatherSequence : copyToRanks
    this.parameters = [shardOf(weight, place.group, 0, { isUneven: true })]
  }

  segments(): readonly Segment[] {
    return inOnePiece(this, this.#place.name)
  }

  forward(x: Tensor): Tensor {
    const [weight] = this.parameters
    const { group, name } = this.#place
    const whole = this.#enter(x, group, `${name}: input`)
    return markPartial(onRows(whole, (rows) => tf.matMul(rows, weight.value, false, true)))
  }
}

/** Row numbers in this rank's part of the table, and 1 for each token that is there, else 0. */
function ownIds(ids: Tensor, { shape, shard }: Parameter): { own: Tensor; here: Tensor } {
  const offset = shard?.offset ?? 0
  const places = Int32Array.from(ids.dataSync<'int32'>(), (id) => id - offset)
  const isHere = (place: number): boolean => place >= 0 && place < shape[0]!
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
