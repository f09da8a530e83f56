/** @typedef {import('@tsrun/distributed').ProcessGroup} ProcessGroup */

/**
 * A function that runs `op` once, and the buffers in the arena that it reads and writes.
 *
 * @param {ProcessGroup} group
 * @param {import('../plan.mjs').Operation | import('../../tune/command.mjs').Tuned} op
 * @param {number} count - float32 elements of the full buffer
 * @param {import('@tsrun/distributed').CollectiveOptions} [options]
 */
export function operationOn(group, op, count, options) {
  const two = op === 'sendRecv' || op === 'allToAll'
  const full = group.alloc('float32', count)
  const second = group.alloc('float32', two ? count : Math.max(1, Math.floor(count / group.size)))
  const free = () => {
    group.free(full)
    group.free(second)
  }
  const root = group.rank === 0 ? full : null
  const inPlace = { source: full, target: full, free }
  const toSecond = { source: full, target: second, free }
  const toFull = { source: second, target: full, free }
  switch (op) {
    case 'allReduce':
      return { ...inPlace, run: () => group.allReduceSync(full, options) }
    case 'reduce':
      return { ...inPlace, run: () => group.reduceSync(full, 0, options) }
    case 'broadcast':
      return { ...inPlace, run: () => group.broadcastSync(full, 0, options) }
    case 'reduceScatter':
      return { ...toSecond, run: () => group.reduceScatterSync(second, full, options) }
    case 'scatter':
      return { ...toSecond, run: () => group.scatterSync(second, root, 0, options) }
    case 'allToAll':
      return { ...toSecond, run: () => group.allToAllSync(second, full, options) }
    case 'sendRecv':
      return { ...toSecond, run: () => exchange(group, full, second) }
    case 'allGather':
      return { ...toFull, run: () => group.allGatherSync(full, second, options) }
    case 'gather':
      return { ...toFull, run: () => group.gatherSync(root, second, 0, options) }
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
 * The first and the last element of the result if the input of every rank is rank + 1; undefined if
 * this rank has no result.
 *
 * @param {Parameters<typeof operationOn>[1]} op
 * @param {number} rank
 * @param {number} size
 * @returns {[number, number] | undefined}
 */
function expectedResult(op, rank, size) {
  const total = (size * (size + 1)) / 2
  const left = ((rank + size - 1) % size) + 1
  if (rank !== 0 && (op === 'reduce' || op === 'gather')) return undefined
  if (op === 'allGather' || op === 'allToAll' || op === 'gather') return [1, size]
  if (op === 'broadcast' || op === 'scatter') return [1, 1]
  return op === 'sendRecv' ? [left, left] : [total, total]
}

/**
 * Runs the operation once on known values, because the time of a wrong result means nothing.
 *
 * @param {ProcessGroup} group
 * @param {Parameters<typeof operationOn>[1]} op
 * @param {ReturnType<typeof operationOn>} operation
 */
export function checkResult(group, op, { run, source, target }) {
  source.fill(group.rank + 1)
  run()
  const expected = expectedResult(op, group.rank, group.size)
  const found = [target[0], target.at(-1)]
  if (expected !== undefined && expected.some((value, i) => found[i] !== value)) {
    throw new Error(`${op} of ${source.length} elements gave ${found.join(' .. ')}`)
  }
  source.fill(0)
  target.fill(0)
}
