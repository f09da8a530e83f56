import { bytesOf, type Operation } from '../operation.ts'
import { arithmeticOf } from './algorithm.ts'
import { until, untilAll, type Channel, type Message, type Steps } from './channel.ts'

/*
 * Binomial trees, for small buffers: in each of log2 n rounds, ranks pass on the whole buffer.
 * Ranks are numbered from the root (root = 0). The parent of v is v without its lowest set bit. The
 * children of v are v + 2^k, for all 2^k below the lowest set bit of v.
 */

export function* binomialBroadcast(channel: Channel, operation: Operation): Steps {
  const { rank, size } = channel
  const { input: at, peer: root } = operation
  const bytes = bytesOf(operation)
  const virtual = (rank - root + size) % size
  const lowest = virtual === 0 ? 2 ** Math.ceil(Math.log2(size)) : virtual & -virtual
  if (virtual !== 0) {
    yield* until(channel.receive((virtual - lowest + root) % size, at, bytes))
  }
  const sends: Message[] = []
  for (let bit = lowest >> 1; bit > 0; bit >>= 1) {
    if (virtual + bit < size) sends.push(channel.send((virtual + bit + root) % size, at, bytes))
  }
  yield* untilAll(sends)
}

/**
 * Reduces a buffer from the leaves to the root. Afterwards, the buffers of other ranks hold partial
 * results.
 */
export function* binomialReduce(channel: Channel, operation: Operation): Steps {
  const { rank, size } = channel
  const { input: at, peer: root } = operation
  const arithmetic = arithmeticOf(channel, operation)
  const bytes = bytesOf(operation)
  const virtual = (rank - root + size) % size
  const scratch = channel.scratch(bytes)
  for (let bit = 1; bit < size; bit <<= 1) {
    if ((virtual & bit) !== 0) {
      yield* until(channel.send((virtual - bit + root) % size, at, bytes))
      return
    }
    if (virtual + bit < size) {
      yield* until(channel.receive((virtual + bit + root) % size, scratch, bytes))
      arithmetic.combine(at, at, scratch, bytes)
    }
  }
  arithmetic.finish(at, bytes)
}

/*
 * Gather and scatter on the binomial tree (Thakur, Rabenseifner & Gropp, 2005), for small slices:
 * log2 n steps. Ranks are numbered from the root (root = 0). The children of v are v + 2^k below
 * v's lowest set bit. The subtree of v consists of v and the ranks after it, below v + the lowest
 * set bit of v and below n.
 *
 * gather: v sends the slices of its subtree to its parent, which are min(lowest bit of v, n - v)
 * slices. scatter: v sends each child the slices of the child's subtree.
 */

interface Tree {
  /** Bytes of a slice. */
  readonly slice: number
  /** This rank's number in the tree. The root has number 0. */
  readonly virtual: number
  /** Number of ranks in the subtree of this rank, including this rank. */
  readonly family: number
  readonly parent: number
  /** Children by distance, the nearest first. Each further child has a subtree twice as large. */
  readonly children: readonly Child[]
}

interface Child {
  readonly rank: number
  /** The child's number in the tree. */
  readonly virtual: number
  readonly family: number
}

function treeOf({ rank, size }: Channel, operation: Operation): Tree {
  const root = operation.peer
  const virtual = (rank - root + size) % size
  const lowest = virtual === 0 ? 2 ** Math.ceil(Math.log2(size)) : virtual & -virtual
  const children: Child[] = []
  for (let bit = 1; bit < lowest && virtual + bit < size; bit <<= 1) {
    const child = virtual + bit
    children.push({
      rank: (child + root) % size,
      virtual: child,
      family: Math.min(bit, size - child),
    })
  }
  return {
    slice: bytesOf(operation),
    virtual,
    family: Math.min(lowest, size - virtual),
    parent: (virtual - lowest + root + size) % size,
    children,
  }
}

export function* binomialGather(channel: Channel, operation: Operation): Steps {
  const { rank, size, kernels } = channel
  const { input, output, peer: root } = operation
  const { slice, virtual, family, parent, children } = treeOf(channel, operation)
  if (children.length === 0) {
    yield* until(channel.send(parent, input, slice))
    return
  }
  const isRoot = rank === root
  // If the root is rank 0, slices are already in rank order.
  const isDirect = isRoot && root === 0
  const at = isDirect ? output : channel.scratch(family * slice)
  const receives = children.map((child) =>
    channel.receive(child.rank, at + (child.virtual - virtual) * slice, child.family * slice),
  )
  if (at !== input) kernels.copy(at, input, slice)
  yield* untilAll(receives)
  if (!isRoot) {
    yield* until(channel.send(parent, at, family * slice))
  } else if (!isDirect) {
    // Rotate the slices, which are numbered from the root, into rank order.
    const before = (size - root) * slice
    kernels.copy(output + root * slice, at, before)
    kernels.copy(output, at + before, root * slice)
  }
}

export function* binomialScatter(channel: Channel, operation: Operation): Steps {
  const { rank, size, kernels } = channel
  const { input, output, peer: root } = operation
  const { slice, virtual, family, parent, children } = treeOf(channel, operation)
  if (children.length === 0) {
    yield* until(channel.receive(parent, output, slice))
    return
  }
  const isRoot = rank === root
  const isDirect = isRoot && root === 0
  const at = isDirect ? input : channel.scratch(family * slice)
  if (!isRoot) {
    yield* until(channel.receive(parent, at, family * slice))
  } else if (!isDirect) {
    const before = (size - root) * slice
    kernels.copy(at, input + root * slice, before)
    kernels.copy(at + before, input, root * slice)
  }
  const sends: Message[] = []
  for (const child of [...children].reverse()) {
    const place = at + (child.virtual - virtual) * slice
    sends.push(channel.send(child.rank, place, child.family * slice))
  }
  if (output !== at) kernels.copy(output, at, slice)
  yield* untilAll(sends)
}
