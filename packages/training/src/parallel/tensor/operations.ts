import type { ProcessGroup } from '@tsrun/distributed'
import type { Tensor } from '@tensorflow/tfjs-core'
import { isLocal, type Exchange, type LocalSegment } from '../../model/segment.ts'
import { tf } from '../../tfjs/tfjs.ts'
import {
  gatherColumns,
  gatherPositions,
  reduceScatterColumns,
  reduceScatterPositions,
  runBetweenPasses,
  runInPass,
  sum,
  type TensorCollective,
} from './collectives.ts'

/*
 * The operations between replicated and sharded parts of a model (Shoeybi et al., "Megatron-LM", 2019),
 * forward and backward. All ranks of the group run them in the same order. Groups of one rank pass
 * tensors through. Errors of an operation's messages begin with its label.
 */

/** One direction of an operation. */
interface Direction {
  /** Blocks; the result belongs to the current pass. */
  inPass(x: Tensor, group: ProcessGroup, label: string): Tensor
  /** The caller keeps `x` until the promise has settled, and disposes the result. */
  betweenPasses(x: Tensor, group: ProcessGroup, label: string): Promise<Tensor>
}

/** An operation whose gradient is another operation. */
interface ShardingOperation {
  readonly forward: Direction
  readonly backward: Direction
}

const collectively = (collective: TensorCollective): Direction => ({
  inPass: (...of) => runInPass(collective, ...of),
  betweenPasses: (...of) => runBetweenPasses(collective, ...of),
})

const locally = (compute: (x: Tensor, group: ProcessGroup) => Tensor): Direction => ({
  inPass: compute,
  betweenPasses: (x, group) => Promise.resolve(tf.keep(compute(x, group))),
})

const same = locally((x) => tf.clone(x))
const slice = locally(sliceOf)
const sumAll = collectively(sum)
const gather = collectively(gatherColumns)
const reduceScatter = collectively(reduceScatterColumns)
const gatherParts = collectively(gatherPositions)
const reduceScatterParts = collectively(reduceScatterPositions)

/** By the name of their function. */
export const operations = {
  copyToRanks: { forward: same, backward: sumAll },
  sumOverRanks: { forward: sumAll, backward: same },
  gatherReplicated: { forward: gather, backward: slice },
  gatherPartial: { forward: gather, backward: reduceScatter },
  scatterToRanks: { forward: slice, backward: gather },
  gatherSequence: { forward: gatherParts, backward: reduceScatterParts },
  scatterSequence: { forward: reduceScatterParts, backward: gatherParts },
} satisfies Record<string, ShardingOperation>

/** Runs an operation inside a pass, with its gradient. */
function operate(
  { forward, backward }: ShardingOperation,
  x: Tensor,
  group: ProcessGroup,
  label = 'tensor parallel',
): Tensor {
  if (group.size === 1) return x
  return tf.customGrad((input) => ({
    value: forward.inPass(input as Tensor, group, label),
    gradFunc: (dy: Tensor) => backward.inPass(dy, group, backwardLabel(label)),
  }))(x)
}

const backwardLabel = (label: string): string => `${label}, backward`

/** An operation as a segment, which runs between passes or inside one. */
interface LayerExchange extends Exchange {
  /** Runs it on the tape; blocks. */
  inPass(x: Tensor): Tensor
}

/** A part of a layer, for both `recordSegments` and `forward` in one piece. */
export type LayerSegment = LocalSegment | LayerExchange

/** @param back - the label of the backward pass */
export function exchange(
  operation: ShardingOperation,
  group: ProcessGroup,
  label: string,
  back = backwardLabel(label),
): LayerExchange {
  const { forward, backward } = operation
  return {
    inPass: (x) => operate(operation, x, group, label),
    forward: (x) => forward.betweenPasses(x, group, label),
    backward: (dy) => backward.betweenPasses(dy, group, back),
  }
}

/** The forward pass of a layer in one piece. */
export function through(segments: readonly LayerSegment[], x: Tensor): Tensor {
  return segments.reduce(
    (h, segment) => (isLocal(segment) ? segment.forward(h) : segment.inPass(h)),
    x,
  )
}

/** Returns `x`; the gradient is summed over the ranks. Used before a layer whose columns are shared. */
export function copyToRanks(x: Tensor, group: ProcessGroup, label?: string): Tensor {
  return operate(operations.copyToRanks, x, group, label)
}

/** Sums over the ranks; the gradient is unchanged. Used after a layer whose rows are shared. */
export function sumOverRanks(x: Tensor, group: ProcessGroup, label?: string): Tensor {
  return operate(operations.sumOverRanks, x, group, label)
}

/**
 * Concatenates the last axis over the ranks, for a model that continues identically on every rank. All
 * ranks then have the whole gradient, and each takes its slice of it.
 */
export function gatherReplicated(x: Tensor, group: ProcessGroup, label?: string): Tensor {
  return operate(operations.gatherReplicated, x, group, label)
}

/**
 * Concatenates the last axis over the ranks, for a model that continues differently on every rank. Each
 * rank then has a partial gradient, and these are summed (a reduce-scatter). A slice of the local
 * gradient would leave out the contributions of other ranks.
 */
export function gatherPartial(x: Tensor, group: ProcessGroup, label?: string): Tensor {
  return operate(operations.gatherPartial, x, group, label)
}

/** Returns this rank's slice of the last axis; the gradient is gathered. */
export function scatterToRanks(x: Tensor, group: ProcessGroup, label?: string): Tensor {
  return operate(operations.scatterToRanks, x, group, label)
}

/**
 * Concatenates the parts of each sequence in rank order; the gradients are summed, and each rank gets its
 * part. Used before a layer whose columns are shared, if ranks hold parts of sequences between the layers.
 */
export function gatherSequence(x: Tensor, group: ProcessGroup, label?: string): Tensor {
  return operate(operations.gatherSequence, x, group, label)
}

/** Sums sequences over the ranks and returns this rank's part of each; the gradient is gathered. */
export function scatterSequence(x: Tensor, group: ProcessGroup, label?: string): Tensor {
  return operate(operations.scatterSequence, x, group, label)
}

function sliceOf(x: Tensor, { rank, size }: ProcessGroup): Tensor {
  const columns = x.shape.at(-1)! / size
  const begin = x.shape.map((_, axis) => (axis === x.rank - 1 ? rank * columns : 0))
  const extent = [...x.shape.slice(0, -1), columns]
  return tf.slice(x, begin, extent)
}
