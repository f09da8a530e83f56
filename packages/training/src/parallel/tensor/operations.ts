import type { ProcessGroup } from '@tsrun/distributed'
import type { Tensor } from '@tensorflow/tfjs-core'
import { tf } from '../../tfjs/tfjs.ts'
import {
  gatherColumns,
  gatherPositions,
  reduceScatterColumns,
  reduceScatterPositions,
  sum,
  type Collective,
} from './collectives.ts'
import { awaitTransfer, transfer } from './transfer.ts'

/*
 * The operations between replicated and sharded parts of a model (Shoeybi et al., "Megatron-LM",
 * 2019), forward and backward: all ranks of the group run them in the same order. Groups of one
 * rank pass tensors through. A label stands first in the errors of an operation's messages.
 */

/** What becomes of a tensor, in a pass and between passes. */
interface Step {
  /** Blocks; the result belongs to the pass that is under way. */
  inPass(x: Tensor, group: ProcessGroup, label: string): Tensor
  /** The result is the caller's; `x` is to be kept until it is there. */
  between(x: Tensor, group: ProcessGroup, label: string): Promise<Tensor>
}

/** An operation whose gradient is another one. */
export interface Operation {
  readonly forward: Step
  readonly backward: Step
}

const step = (collective: Collective): Step => ({
  inPass: (...of) => transfer(collective, ...of),
  between: (...of) => awaitTransfer(collective, ...of),
})

/** Of this rank alone. */
const alone = (compute: (x: Tensor, group: ProcessGroup) => Tensor): Step => ({
  inPass: compute,
  between: (x, group) => Promise.resolve(tf.keep(compute(x, group))),
})

const same = alone((x) => tf.clone(x))
const slice = alone(sliceOf)
const sumAll = step(sum)
const gather = step(gatherColumns)
const reduceScatter = step(reduceScatterColumns)
const gatherParts = step(gatherPositions)
const reduceScatterParts = step(reduceScatterPositions)

/** By the name of the function. */
export const operations = {
  copyToRanks: { forward: same, backward: sumAll },
  sumOverRanks: { forward: sumAll, backward: same },
  gatherReplicated: { forward: gather, backward: slice },
  gatherPartial: { forward: gather, backward: reduceScatter },
  scatterToRanks: { forward: slice, backward: gather },
  gatherSequence: { forward: gatherParts, backward: reduceScatterParts },
  scatterSequence: { forward: reduceScatterParts, backward: gatherParts },
} satisfies Record<string, Operation>

/** An operation inside a pass, with its gradient. */
export function operate(
  { forward, backward }: Operation,
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

export const backwardLabel = (label: string): string => `${label}, backward`

/** Identity; the gradient is summed over the ranks. In front of a layer whose columns are shared. */
export function copyToRanks(x: Tensor, group: ProcessGroup, label?: string): Tensor {
  return operate(operations.copyToRanks, x, group, label)
}

/** The sum over the ranks; the gradient passes unchanged. Behind a layer whose rows are shared. */
export function sumOverRanks(x: Tensor, group: ProcessGroup, label?: string): Tensor {
  return operate(operations.sumOverRanks, x, group, label)
}

/**
 * The last axes of all ranks side by side, where all that follows is the same on every rank: then all
 * have the whole gradient, and each takes its slice of it.
 */
export function gatherReplicated(x: Tensor, group: ProcessGroup, label?: string): Tensor {
  return operate(operations.gatherReplicated, x, group, label)
}

/**
 * The last axes of all ranks side by side, where what follows differs from rank to rank: then each
 * has a part of the gradient, and these are summed (a reduce-scatter). To slice here would leave out
 * what the other ranks have made of this slice.
 */
export function gatherPartial(x: Tensor, group: ProcessGroup, label?: string): Tensor {
  return operate(operations.gatherPartial, x, group, label)
}

/** This rank's slice of the last axis; the gradient is gathered. */
export function scatterToRanks(x: Tensor, group: ProcessGroup, label?: string): Tensor {
  return operate(operations.scatterToRanks, x, group, label)
}

/**
 * The parts of each sequence of all ranks, one behind the other; the gradients are summed, and each rank
 * gets its part. In front of a layer whose columns are shared, between which each rank has a part of
 * each sequence.
 */
export function gatherSequence(x: Tensor, group: ProcessGroup, label?: string): Tensor {
  return operate(operations.gatherSequence, x, group, label)
}

/** The sum over the ranks, of which each gets its part of each sequence; the gradient is gathered. */
export function scatterSequence(x: Tensor, group: ProcessGroup, label?: string): Tensor {
  return operate(operations.scatterSequence, x, group, label)
}

function sliceOf(x: Tensor, { rank, size }: ProcessGroup): Tensor {
  const columns = x.shape.at(-1)! / size
  const begin = x.shape.map((_, axis) => (axis === x.rank - 1 ? rank * columns : 0))
  const extent = [...x.shape.slice(0, -1), columns]
  return tf.slice(x, begin, extent)
}
