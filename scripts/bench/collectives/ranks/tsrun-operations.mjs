/** @typedef {import('@tsrun/distributed').ProcessGroup} ProcessGroup */

/**
 * A function that runs `op` once, and the buffers in the arena that it reads and writes.
 *
 * @param {ProcessGroup} group
 * @param {import('../operations.mjs').Operation} op
 * @param {number} count - float32 elements of the full buffer
 */
export function operationOn(group, op, count) {
  const two = op === 'sendRecv' || op === 'allToAll'
  const full = group.alloc('float32', count)
  const second = group.alloc('float32', two ? count : Math.max(1, Math.floor(count / group.size)))
  const free = () => {
    group.free(full)
    group.free(second)
  }
  switch (op) {
    case 'allReduce':
      return { run: () => group.allReduceSync(full), source: full, target: full, free }
    case 'reduceScatter':
      return {
        run: () => group.reduceScatterSync(second, full),
        source: full,
        target: second,
        free,
      }
    case 'allGather':
      return { run: () => group.allGatherSync(full, second), source: second, target: full, free }
    case 'broadcast':
      return { run: () => group.broadcastSync(full, 0), source: full, target: full, free }
    case 'allToAll':
      return { run: () => group.allToAllSync(second, full), source: full, target: second, free }
    case 'sendRecv':
      return { run: () => exchange(group, full, second), source: full, target: second, free }
    default:
      throw new Error(`unknown operation ${op}`)
  }
}

/**
 * Sends to the right neighbour and receives from the left one, at the same time.
 *
 * @param {ProcessGroup} group
 * @param {Float32Array} outgoing
 * @param {Float32Array} incoming
 */
function exchange(group, outgoing, incoming) {
  const received = group.irecv(incoming, (group.rank + group.size - 1) % group.size)
  const sent = group.isend(outgoing, (group.rank + 1) % group.size)
  received.wait()
  sent.wait()
}

/**
 * First and last element of the result when every rank's input is rank + 1.
 *
 * @param {import('../operations.mjs').Operation} op
 * @param {number} rank
 * @param {number} size
 * @returns {[number, number]}
 */
export function expectedResult(op, rank, size) {
  const total = (size * (size + 1)) / 2
  const left = ((rank + size - 1) % size) + 1
  if (op === 'allGather' || op === 'allToAll') return [1, size]
  if (op === 'broadcast') return [1, 1]
  return op === 'sendRecv' ? [left, left] : [total, total]
}
