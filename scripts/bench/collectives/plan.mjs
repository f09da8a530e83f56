// What is measured: operations, sizes, and how often.

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
 * The float32 elements of a buffer of at most `bytes`. For operations that cut the buffer into one
 * slice per rank it is a multiple of the number of ranks.
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

/**
 * One operation on one size: what every system measures.
 *
 * @typedef {object} Step
 * @property {Operation} op
 * @property {number} count - float32 elements of the full buffer
 * @property {number} warmUps
 * @property {number} repeats
 */

/**
 * @param {readonly Operation[]} ops
 * @param {readonly number[]} sizes - bytes
 * @param {number} ranks
 * @param {(bytes: number) => Pick<Step, 'warmUps' | 'repeats'>} [times]
 * @returns {Step[]}
 */
export function plan(ops, sizes, ranks, times = repetitions) {
  return ops.flatMap((op) =>
    sizes.map((bytes) => ({ op, count: countFor(op, bytes, ranks), ...times(bytes) })),
  )
}

/**
 * Many repetitions for small buffers, whose times vary and cost little; few for large ones. Our ranks
 * multiply the warm-up of small ones by thirty because of the just-in-time compiler.
 *
 * @param {number} bytes
 */
function repetitions(bytes) {
  if (bytes <= 64 * 2 ** 10) return { warmUps: 200, repeats: 300 }
  if (bytes <= 4 * 2 ** 20) return { warmUps: 100, repeats: 100 }
  return { warmUps: 3, repeats: 12 }
}

/**
 * A step in the form that the ranks of all systems read: `allReduce:1024:30:300`.
 *
 * @param {Step} step
 */
export function stepArgument({ op, count, warmUps, repeats }) {
  return [op, count, warmUps, repeats].join(':')
}

/**
 * @param {string} argument
 * @returns {Step}
 */
export function parseStep(argument) {
  const [op, count, warmUps, repeats] = argument.split(':')
  return {
    op: /** @type {Operation} */ (op),
    count: Number(count),
    warmUps: Number(warmUps),
    repeats: Number(repeats),
  }
}
