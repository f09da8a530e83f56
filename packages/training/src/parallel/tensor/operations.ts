import { tsrError } from '@tsrun/core'
import type { ProcessGroup } from '@tsrun/distributed'
import type { Tensor } from '@tensorflow/tfjs-core'
import { tf } from '../../backend/tensorflow.ts'
import { gatherColumns, reduceScatterColumns, sum } from './collectives.ts'

/*
 * The operations between replicated and sharded parts of a model (Shoeybi et al., "Megatron-LM",
 * 2019), forward and backward: all ranks of the group run them in the same order. Groups of one
 * rank pass tensors through. A label stands first in the errors of an operation's messages.
 */

type Step = (x: Tensor, group: ProcessGroup, label: string) => Tensor

const same: Step = (x) => tf.clone(x)

/** An operation whose gradient is another one. */
function between(
  x: Tensor,
  { group, label = 'tensor parallel' }: { group: ProcessGroup; label?: string | undefined },
  forward: Step,
  backward: Step,
): Tensor {
  if (group.size === 1) return x
  return tf.customGrad((input) => ({
    value: forward(input as Tensor, group, label),
    gradFunc: (dy: Tensor) => backward(dy, group, `${label}, backward`),
  }))(x)
}

/** Identity; the gradient is summed over the ranks. In front of a layer whose columns are shared. */
export function copyToRanks(x: Tensor, group: ProcessGroup, label?: string): Tensor {
  return between(x, { group, label }, same, sum)
}

/** The sum over the ranks; the gradient passes unchanged. Behind a layer whose rows are shared. */
export function sumOverRanks(x: Tensor, group: ProcessGroup, label?: string): Tensor {
  return between(x, { group, label }, sum, same)
}

/**
 * The last axes of all ranks side by side, where all that follows is the same on every rank: then all
 * have the whole gradient, and each takes its slice of it.
 */
export function gatherReplicated(x: Tensor, group: ProcessGroup, label?: string): Tensor {
  return between(x, { group, label }, gatherColumns, sliceOf)
}

/**
 * The last axes of all ranks side by side, where what follows differs from rank to rank: then each
 * has a part of the gradient, and these are summed (a reduce-scatter). To slice here would leave out
 * what the other ranks have made of this slice.
 */
export function gatherPartial(x: Tensor, group: ProcessGroup, label?: string): Tensor {
  return between(x, { group, label }, gatherColumns, reduceScatterColumns)
}

/** This rank's slice of the last axis; the gradient is gathered. */
export function scatterToRanks(x: Tensor, group: ProcessGroup, label?: string): Tensor {
  return between(x, { group, label }, sliceOf, gatherColumns)
}

/**
 * The parts of each sequence of all ranks, one behind the other; the gradients are summed, and each rank
 * gets its part. In front of a layer whose columns are shared, between which each rank has a part of
 * each sequence.
 */
export function gatherSequence(x: Tensor, group: ProcessGroup, label?: string): Tensor {
  return between(
    x,
    { group, label },
    alongSequence(gatherColumns),
    alongSequence(reduceScatterColumns),
  )
}

/** The sum over the ranks, of which each gets its part of each sequence; the gradient is gathered. */
export function scatterSequence(x: Tensor, group: ProcessGroup, label?: string): Tensor {
  const { size } = group
  if (x.shape[1]! % size !== 0) {
    throw tsrError('ERR_TSR_ARGUMENT', {
      name: 'the length of a sequence',
      value: x.shape[1]!,
      expected: `a multiple of the ${String(size)} ranks that share it`,
    })
  }
  return between(
    x,
    { group, label },
    alongSequence(reduceScatterColumns),
    alongSequence(gatherColumns),
  )
}

/** What is done to columns, done to the second axis of [batch, length, width]. */
function alongSequence(step: Step): Step {
  return (x, group, label) => {
    const [batch, , width] = x.shape as [number, number, number]
    return tf.reshape(step(tf.reshape(x, [batch, -1]), group, label), [batch, -1, width])
  }
}

function sliceOf(x: Tensor, { rank, size }: ProcessGroup): Tensor {
  const columns = x.shape.at(-1)! / size
  const begin = x.shape.map((_, axis) => (axis === x.rank - 1 ? rank * columns : 0))
  const extent = [...x.shape.slice(0, -1), columns]
  return tf.slice(x, begin, extent)
}
