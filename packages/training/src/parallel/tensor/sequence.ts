import type { ProcessGroup } from '@tsrun/distributed'
import { ofKind, type Separable } from '../../model/module.ts'
import type { Segment } from '../../model/segment.ts'
import { hasPositions, type Positions } from '../../nn/embedding.ts'
import { tf, type Tensor } from '../../tfjs/tfjs.ts'
import type { LayerContext } from './linear-layers.ts'
import { copyToRanks } from './operations.ts'
import { inOnePiece } from './record-segments.ts'

export type SequenceParallel = ReturnType<typeof sequenceParallelLayer>

/**
 * A sequence parallel layer: runs a layer, such as a norm between tensor parallel layers, on this
 * rank's part of each sequence. All ranks have the same parameters. Parameter gradients are summed
 * over the ranks, because each rank sees only some positions.
 */
export function sequenceParallelLayer(layer: Separable, { group, name }: LayerContext) {
  if (hasPositions(layer)) layer.positions = partOf(layer.positions, group)
  const module = {
    kind: 'sequence-parallel' as const,
    /** The layer that runs on this rank's part of each sequence. */
    layer,
    /** The number of ranks that share each sequence. */
    ranks: group.size,
    get parameters() {
      return layer.parameters
    },
    segments: (): readonly Segment[] => inOnePiece(module, name),
    /** Runs the layer. @param x - [batch, length / size, width] */
    forward(x: Tensor): Tensor {
      const values = layer.parameters.map(({ value }) => value)
      return layer.forwardWith(copyTogether(values, group, `${name}: parameters`), x)
    },
  }
  return module
}

/** Whether a module computes on a part of each sequence. */
export const isSequenceParallel = ofKind<SequenceParallel>('sequence-parallel')

/** Returns the tensors unchanged. Their gradients are summed over the ranks in one collective. */
function copyTogether(
  values: readonly Tensor[],
  group: ProcessGroup,
  label: string,
): readonly Tensor[] {
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
