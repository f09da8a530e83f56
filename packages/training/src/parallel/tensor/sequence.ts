import type { ProcessGroup } from '@tsrun/distributed'
import { ofKind, type Module, type Separable } from '../../model/module.ts'
import type { Parameter } from '../../model/parameter.ts'
import type { Segment } from '../../model/segment.ts'
import { hasPositions, type Positions } from '../../nn/embedding.ts'
import { tf, type Tensor } from '../../tfjs/tfjs.ts'
import type { LayerContext } from './linear-layers.ts'
import { copyToRanks } from './operations.ts'
import { inOnePiece } from './record-segments.ts'

/**
 * A sequence parallel layer: runs a layer, such as a norm between tensor parallel layers, on this
 * rank's part of each sequence. All ranks have the same parameters. Parameter gradients are summed
 * over the ranks, because each rank sees only some positions.
 */
export class SequenceParallel implements Module {
  readonly kind = 'sequence-parallel'
  /** The layer that runs on this rank's part of each sequence. */
  readonly layer: Separable
  readonly #context: LayerContext

  constructor(layer: Separable, context: LayerContext) {
    this.layer = layer
    this.#context = context
    if (hasPositions(layer)) layer.positions = partOf(layer.positions, context.group)
  }

  /** The number of ranks that share each sequence. */
  get ranks(): number {
    return this.#context.group.size
  }

  get parameters(): readonly Parameter[] {
    return this.layer.parameters
  }

  segments(): readonly Segment[] {
    return inOnePiece(this, this.#context.name)
  }

  /** Runs the layer. @param x - [batch, length / size, width] */
  forward(x: Tensor): Tensor {
    const values = this.parameters.map(({ value }) => value)
    return this.layer.forwardWith(copyTogether(values, this.#context), x)
  }
}

/** Whether a module computes on a part of each sequence. */
export const isSequenceParallel = ofKind<SequenceParallel>('sequence-parallel')

/** Returns the tensors unchanged. Their gradients are summed over the ranks in one collective. */
function copyTogether(values: readonly Tensor[], { group, name }: LayerContext): readonly Tensor[] {
  const label = `${name}: parameters`
  if (values.length === 1) return [copyToRanks(values[0]!, group, label)]
  const all = copyToRanks(tf.concat(values.map((value) => tf.reshape(value, [-1]))), group, label)
  const parts = tf.split(
    all,
    values.map(({ size }) => size),
  )
  return parts.map((part, i) => tf.reshape(part, values[i]!.shape))
}

/** Maps positions in this rank's part of a sequence to positions in the whole sequence. */
export function partOf(positions: Positions, { rank, size }: ProcessGroup): Positions {
  return (length) => positions(length * size).subarray(rank * length, (rank + 1) * length)
}
