import type { ProcessGroup } from '@tsrun/distributed'
import type { Tensor } from '@tensorflow/tfjs-core'
import type { Module, Separable } from '../../nn/module.ts'
import type { Parameter } from '../../nn/parameter.ts'
import { hasPositions, type Positions } from '../../nn/positions.ts'
import { copyToRanks } from './operations.ts'

/**
 * A layer between those that ranks share, on this rank's part of each sequence: its parameters are the
 * same on all ranks, and their gradients are summed, as each rank has seen some positions only.
 */
export class SequenceParallel implements Module {
  readonly kind = 'sequence-parallel'
  readonly #layer: Separable
  readonly #group: ProcessGroup

  constructor(layer: Separable, group: ProcessGroup) {
    this.#layer = layer
    this.#group = group
    if (hasPositions(layer)) layer.positions = partOf(layer.positions, group)
  }

  get parameters(): readonly Parameter[] {
    return this.#layer.parameters
  }

  /** @param x - [batch, length / size, width] */
  forward(x: Tensor): Tensor {
    const values = this.parameters.map(({ value }) => copyToRanks(value, this.#group))
    return this.#layer.forwardWith(values, x)
  }
}

function partOf(positions: Positions, { rank, size }: ProcessGroup): Positions {
  return (length) => positions(length * size).subarray(rank * length, (rank + 1) * length)
}
