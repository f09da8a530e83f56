import type { ProcessGroup } from '@tsrun/distributed'
import type { Tensor } from '@tensorflow/tfjs-core'
import type { Segment } from '../../model/segment.ts'
import { tf } from '../../backend/tfjs.ts'
import type { Module, Separable } from '../../model/module.ts'
import type { Parameter } from '../../model/parameter.ts'
import { hasPositions, type Positions } from '../../nn/positions.ts'
import type { SharedPlace } from './layers.ts'
import { copyToRanks } from './operations.ts'
import { inOnePiece } from './segments.ts'

/**
 * A layer between those that ranks share, on this rank's part of each sequence: its parameters are the
 * same on all ranks, and their gradients are summed, as each rank has seen some positions only.
 */
export class SequenceParallel implements Module {
  readonly kind = 'sequence-parallel'
  readonly #layer: Separable
  readonly #place: SharedPlace

  constructor(layer: Separable, place: SharedPlace) {
    this.#layer = layer
    this.#place = place
    if (hasPositions(layer)) layer.positions = partOf(layer.positions, place.group)
  }

  get parameters(): readonly Parameter[] {
    return this.#layer.parameters
  }

  segments(): readonly Segment[] {
    return inOnePiece(this, this.#place.name)
  }

  /** @param x - [batch, length / size, width] */
  forward(x: Tensor): Tensor {
    const values = this.parameters.map(({ value }) => value)
    return this.#layer.forwardWith(copyTogether(values, this.#place), x)
  }
}

/** The tensors, whose gradients are summed over the ranks in one operation. */
function copyTogether(values: readonly Tensor[], { group, name }: SharedPlace): readonly Tensor[] {
  const label = `${name}: parameters`
  if (values.length === 1) return [copyToRanks(values[0]!, group, label)]
  const all = copyToRanks(tf.concat(values.map((value) => tf.reshape(value, [-1]))), group, label)
  const parts = tf.split(
    all,
    values.map(({ size }) => size),
  )
  return parts.map((part, i) => tf.reshape(part, values[i]!.shape))
}

function partOf(positions: Positions, { rank, size }: ProcessGroup): Positions {
  return (length) => positions(length * size).subarray(rank * length, (rank + 1) * length)
}
