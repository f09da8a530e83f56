import type { ProcessGroup } from '@tsrun/distributed'
import { refuseNested } from '../../autograd/tape.ts'
import { isLocal, type Exchange, type LocalSegment } from '../../model/recording.ts'
import { tf, type Tensor } from '../../tfjs/tfjs.ts'
import {
  complete,
  gatherAlong,
  reduceScatterAlong,
  runWhile,
  sum,
  type TensorCollective,
} from './collectives.ts'

/*
 * Tensor parallel operations that convert between replicated and sharded tensors, each with its gradient
 * (Shoeybi et al., "Megatron-LM", 2019). All ranks of the group must run them in the same order. In a
 * group of one rank an operation returns its input. Error messages begin with the operation's label.
 */

interface Direction {
  /** Runs the operation inside a pass, and blocks. The result belongs to the current pass. */
  inPass(x: Tensor, group: ProcessGroup, label: string): Tensor
  /**
   * Runs the operation between passes, on every backend. Do not dispose `x` before the promise has settled.
   * The caller disposes the result.
   */
  betweenPasses(x: Tensor, group: ProcessGroup, label: string): Promise<Tensor>
}

interface ShardingOperation {
  readonly forward: Direction
  readonly backward: Direction
}

const collectively = (collective: TensorCollective): Direction => ({
  inPass: (...of) => runWhile(collective, ...of, () => undefined).value,
  betweenPasses: async (x, group, label) =>
    (await complete(collective(x, group, { label }), x, group, label))!,
})

const locally = (compute: (x: Tensor, group: ProcessGroup) => Tensor): Direction => ({
  inPass: compute,
  betweenPasses: (x, group) => Promise.resolve(tf.keep(compute(x, group))),
})

const same = locally((x) => tf.clone(x))
const slice = locally((x, { rank, size }) => {
  const columns = x.shape.at(-1)! / size
  const begin = x.shape.map((_, axis) => (axis === x.rank - 1 ? rank * columns : 0))
  return tf.slice(x, begin, [...x.shape.slice(0, -1), columns])
})
const sumAll = collectively(sum)
const gather = collectively(gatherAlong(-1))
const reduceScatter = collectively(reduceScatterAlong(-1))
const gatherParts = collectively(gatherAlong(1))
const reduceScatterParts = collectively(reduceScatterAlong(1))

/** The operations, by the name of the function that applies each one. */
export const operations = {
  copyToRanks: { forward: same, backward: sumAll },
  sumOverRanks: { forward: sumAll, backward: same },
  gatherReplicated: { forward: gather, backward: slice },
  gatherPartial: { forward: gather, backward: reduceScatter },
  scatterToRanks: { forward: slice, backward: gather },
  gatherSequence: { forward: gatherParts, backward: reduceScatterParts },
  scatterSequence: { forward: reduceScatterParts, backward: gatherParts },
} satisfies Record<string, ShardingOperation>

/** Returns a function that runs an operation inside a pass, and records its gradient on the tape. */
function operator({
  forward,
  backward,
}: ShardingOperation): (x: Tensor, group: ProcessGroup, label?: string) => Tensor {
  return (x, group, label = 'tensor parallel') => {
    if (group.size === 1) return x
    refuseNested('a tensor parallel layer')
    return tf.customGrad((input) => ({
      value: forward.inPass(input as Tensor, group, label),
      gradFunc: (dy: Tensor) => backward.inPass(dy, group, backwardLabel(label)),
    }))(x)
  }
}

const backwardLabel = (label: string) => `${label}, backward`

interface LayerExchange extends Exchange {
  /** Runs the operation inside a pass, recorded on the tape. The call blocks. */
  inPass(x: Tensor): Tensor
}

/** A segment of a layer. `recordSegments` runs segments one by one, `forward` runs all in one pass. */
export type LayerSegment = LocalSegment | LayerExchange

/** @param back - the label of the operation in the backward pass */
export function exchange(
  operation: ShardingOperation,
  group: ProcessGroup,
  label: string,
  back = backwardLabel(label),
): LayerExchange {
  const { forward, backward } = operation
  const run = operator(operation)
  return {
    inPass: (x) => run(x, group, label),
    forward: (x) => forward.betweenPasses(x, group, label),
    backward: (dy) => backward.betweenPasses(dy, group, back),
  }
}

/** Runs all segments of a layer inside one pass. */
export function through(segments: readonly LayerSegment[], x: Tensor): Tensor {
  return segments.reduce(
    (h, segment) => (isLocal(segment) ? segment.forward(h) : segment.inPass(h)),
    x,
  )
}

/** Returns `x` unchanged; the gradient is summed over the ranks. Used before a column parallel layer. */
export const copyToRanks = operator(operations.copyToRanks)

/** Sums `x` over the ranks; the gradient is passed through unchanged. Used after a row parallel layer. */
export const sumOverRanks = operator(operations.sumOverRanks)

/**
 * Concatenates the last axis over the ranks, for a model that continues with the same computation
 * on every rank. All ranks then have the whole gradient, and each rank takes its slice of it.
 */
export const gatherReplicated = operator(operations.gatherReplicated)

/**
 * Concatenates the last axis over the ranks, for a model that continues with a different
 * computation on every rank. Each rank then has only a part of the gradient, so the parts are
 * summed with a reduce-scatter.
 */
export const gatherPartial = operator(operations.gatherPartial)

/** Returns this rank's slice of the last axis; the gradient is gathered from all ranks. */
export const scatterToRanks = operator(operations.scatterToRanks)

/**
 * Concatenates the parts of each sequence in rank order. Gradients are summed over the ranks, and each
 * rank gets the gradient of its part. Used before a column parallel layer with sequence parallelism.
 */
export const gatherSequence = operator(operations.gatherSequence)

/**
 * Sums sequences over the ranks, and returns this rank's part of each sequence. The gradient is
 * gathered from all ranks.
 */
export const scatterSequence = operator(operations.scatterSequence)
