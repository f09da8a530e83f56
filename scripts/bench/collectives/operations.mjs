/**
 * Bytes that cross the busiest link, as a multiple of the buffer: busbw = algbw x this factor, so
 * that figures of different operations and world sizes can be compared with the hardware's rate
 * (nccl-tests, doc/PERFORMANCE.md).
 *
 * The buffer is always the *full* one: the input of reduceScatter, the output of allGather.
 *
 * @type {Readonly<Record<Operation, (ranks: number) => number>>}
 */
const busFactors = {
  allReduce: (ranks) => (2 * (ranks - 1)) / ranks,
  reduceScatter: (ranks) => (ranks - 1) / ranks,
  allGather: (ranks) => (ranks - 1) / ranks,
  broadcast: () => 1,
  allToAll: (ranks) => (ranks - 1) / ranks,
  sendRecv: () => 1,
}

/** @typedef {'allReduce' | 'reduceScatter' | 'allGather' | 'broadcast' | 'allToAll' | 'sendRecv'} Operation */

export const operations = /** @type {readonly Operation[]} */ (Object.keys(busFactors))

/** @type {ReadonlySet<string>} */
const sliced = new Set(['reduceScatter', 'allGather', 'allToAll', 'gather', 'scatter'])

/**
 * @param {Operation} op
 * @param {number} ranks
 * @returns {number}
 */
export function busFactor(op, ranks) {
  return busFactors[op](ranks)
}

/**
 * Elements (float32) of a buffer of at most `bytes`: for operations that cut the buffer in one
 * slice a rank, a multiple of the number of ranks.
 *
 * @param {string} op
 * @param {number} bytes
 * @param {number} ranks
 * @returns {number}
 */
export function countFor(op, bytes, ranks) {
  const unit = sliced.has(op) ? ranks : 1
  return Math.max(1, Math.floor(bytes / 4 / unit)) * unit
}
