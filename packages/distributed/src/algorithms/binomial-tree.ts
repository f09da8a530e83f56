import { bytesOf, type Operation } from '../operation.ts'
import { arithmeticOf, rotate, until, untilAll, type Algorithms, type Channel } from './channel.ts'

/*
 * Binomial trees, for small buffers: in each of log2 n rounds, ranks pass on the whole buffer.
 * Ranks are numbered from the root (root = 0). The parent of v is v without its lowest set bit. The
 * children of v are v + 2^k, for all 2^k below the lowest set bit of v.
 */

function treeOf({ rank, size }: Channel, operation: Operation) {
  const root = operation.peer
  const virtual = (rank - root + size) % size
  const lowest = virtual === 0 ? 2 ** Math.ceil(Math.log2(size)) : virtual & -virtual
  const distances: number[] = []
  for (let bit = 1; bit < lowest && virtual + bit < size; bit <<= 1) distances.push(bit)
  return {
    /** Size in bytes of the whole buffer; in operations with slices, of one slice. */
    bytes: bytesOf(operation),
    isRoot: virtual === 0,
    /** Number of ranks in the subtree of this rank, including this rank. */
    family: Math.min(lowest, size - virtual),
    parent: (virtual - lowest + root + size) % size,
    /** The children, the nearest first. Each further child has a subtree twice as large. */
    children: distances.map((distance) => ({
      rank: (rank + distance) % size,
      distance,
      family: Math.min(distance, size - virtual - distance),
    })),
  }
}

export const binomialTree = {
  *broadcast(channel, operation) {
    const { input: at } = operation
    const { bytes, isRoot, parent, children } = treeOf(channel, operation)
    if (!isRoot) yield* until(channel.receive(parent, at, bytes))
    yield* untilAll(children.toReversed().map(({ rank }) => channel.send(rank, at, bytes)))
  },

  /** Afterwards, the buffers of other ranks than the root hold partial results. */
  *reduce(channel, operation) {
    const { input: at } = operation
    const arithmetic = arithmeticOf(channel, operation)
    const { bytes, isRoot, parent, children } = treeOf(channel, operation)
    const scratch = channel.scratch(bytes)
    for (const { rank } of children) {
      yield* until(channel.receive(rank, scratch, bytes))
      arithmetic.combine(at, at, scratch, bytes)
    }
    if (isRoot) arithmetic.finish(at, bytes)
    else yield* until(channel.send(parent, at, bytes))
  },

  /*
   * Gather and scatter on the binomial tree (Thakur, Rabenseifner & Gropp, 2005), for small slices:
   * log2 n steps. The subtree of v consists of v and the ranks after it, below v + the lowest set bit
   * of v and below n.
   *
   * gather: v sends the slices of its subtree to its parent, which are min(lowest bit of v, n - v)
   * slices. scatter: v sends each child the slices of the child's subtree.
   */
  *gather(channel, operation) {
    const { size, kernels } = channel
    const { input, output, peer: root } = operation
    const { bytes: slice, isRoot, family, parent, children } = treeOf(channel, operation)
    if (children.length === 0) {
      yield* until(channel.send(parent, input, slice))
      return
    }
    const at = channel.scratch(family * slice)
    const receives = children.map((child) =>
      channel.receive(child.rank, at + child.distance * slice, child.family * slice),
    )
    kernels.copy(at, input, slice)
    yield* untilAll(receives)
    if (!isRoot) yield* until(channel.send(parent, at, family * slice))
    // Rotate the slices, which are numbered from the root, into rank order.
    else rotate(channel, output, at, slice, size, size - root)
  },

  *scatter(channel, operation) {
    const { size, kernels } = channel
    const { input, output, peer: root } = operation
    const { bytes: slice, isRoot, family, parent, children } = treeOf(channel, operation)
    if (children.length === 0) {
      yield* until(channel.receive(parent, output, slice))
      return
    }
    const at = channel.scratch(family * slice)
    if (!isRoot) yield* until(channel.receive(parent, at, family * slice))
    else rotate(channel, at, input, slice, size, root)
    const sends = children
      .toReversed()
      .map((child) => channel.send(child.rank, at + child.distance * slice, child.family * slice))
    kernels.copy(output, at, slice)
    yield* untilAll(sends)
  },
} satisfies Algorithms
