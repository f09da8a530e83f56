import { countFor } from './operations.mjs'

/**
 * One operation on one size: what every system measures.
 *
 * @typedef {object} Step
 * @property {import('./operations.mjs').Operation} op
 * @property {number} count - float32 elements of the full buffer
 * @property {number} warmUps
 * @property {number} repeats
 */

/**
 * @param {readonly import('./operations.mjs').Operation[]} ops
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
 * Many for small buffers, whose times scatter and cost nothing; few for large ones. Ours repeats the
 * warm-up of small ones thirty times, for the just-in-time compiler.
 *
 * @param {number} bytes
 */
function repetitions(bytes) {
  if (bytes <= 64 * 2 ** 10) return { warmUps: 200, repeats: 300 }
  if (bytes <= 4 * 2 ** 20) return { warmUps: 100, repeats: 100 }
  return { warmUps: 3, repeats: 12 }
}

/**
 * The form in which the ranks of all systems read it: `allReduce:1024:30:300`.
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
    op: /** @type {import('./operations.mjs').Operation} */ (op),
    count: Number(count),
    warmUps: Number(warmUps),
    repeats: Number(repeats),
  }
}
