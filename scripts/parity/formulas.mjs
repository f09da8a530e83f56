import { noTraffic } from './count.mjs'

/**
 * Of one rank's traffic in a step, by axis, what follows from the layout; what is not here has no
 * formula.
 *
 * @typedef {Partial<import('./count.mjs').Traffic>} Expected
 *
 * @typedef {object} Place
 * @property {number} stage - the rank's place on the axis pp
 * @property {{ collectives: number, bytes: number }} averaging - one step of what averages, which has
 *   formulas of its own
 */

/** A norm is one number in each group whose ranks have different parts. */
const NORM = { collectives: 1, bytes: 8 }

/**
 * @param {import('./configurations.mjs').Configuration} configuration
 * @param {import('./models.mjs').Problem} problem
 * @param {Place} place
 * @returns {{ averaging: Expected, pp: Expected, tp: Expected }}
 */
export function expectedTraffic(configuration, problem, place) {
  const { dp = 1, shard = 1, pp = 1, cp = 1, tp = 1 } = configuration
  return {
    averaging: dp * shard * cp === 1 ? noTraffic() : averagingTraffic(configuration, place),
    pp: pp === 1 ? noTraffic() : pipelineTraffic(configuration, problem, place),
    tp: tp === 1 ? noTraffic() : tensorTraffic(configuration, problem, place),
  }
}

/**
 * @param {import('./configurations.mjs').Configuration} configuration
 * @param {Place} place
 */
function averagingTraffic({ shard = 1 }, { averaging: { collectives, bytes } }) {
  const norm = shard > 1 ? NORM : noTraffic()
  return {
    ...noTraffic(),
    collectives: collectives + norm.collectives,
    bytes: bytes + norm.bytes,
  }
}

/**
 * Over each boundary every example goes forward once and its gradient back; the shape of the inputs
 * (nine int32), the loss (two float64) and the norm go to all.
 *
 * @param {import('./configurations.mjs').Configuration} configuration
 * @param {import('./models.mjs').Problem} problem
 * @param {Place} place
 */
function pipelineTraffic(configuration, problem, { stage }) {
  const { dp = 1, shard = 1, pp = 1, cp = 1, tp = 1, sequence = false } = configuration
  const { chunks = 1, microbatches = 4 } = configuration
  const last = pp * chunks - 1
  const own = Array.from({ length: chunks }, (_, chunk) => chunk * pp + stage)
  const crossings = own.filter((each) => each > 0).length + own.filter((each) => each < last).length
  const rows = problem.examples / (dp * shard)
  const example = (4 * problem.boundary) / (cp * (sequence ? tp : 1))
  return {
    collectives: 2 + NORM.collectives,
    bytes: 9 * 4 + 2 * 8 + NORM.bytes,
    messages: crossings * Math.min(microbatches, rows),
    sent: crossings * rows * example,
  }
}

/**
 * @param {import('./configurations.mjs').Configuration} configuration
 * @param {import('./models.mjs').Problem} problem
 * @param {Place} place
 * @returns {Expected}
 */
function tensorTraffic({ pp = 1, microbatches = 4, sequence = false }, problem, { stage }) {
  if (problem.tensorCollectives === undefined || sequence) return {}
  const passes = pp === 1 ? 1 : microbatches
  const each = problem.tensorCollectives(1 / pp, stage === 0, stage === pp - 1)
  return { collectives: passes * each + NORM.collectives, messages: 0 }
}

/**
 * @param {Readonly<Record<string, import('./count.mjs').Traffic>>} found - by axis
 * @param {Readonly<Record<string, Expected>>} expected
 * @returns {string[]} what differs
 */
export function differences(found, expected) {
  return Object.entries(expected).flatMap(([axis, wanted]) =>
    Object.entries(wanted).flatMap(([key, value]) => {
      const own = found[axis]?.[/** @type {keyof import('./count.mjs').Traffic} */ (key)]
      return own === value ? [] : [`${axis} ${key}: ${own}, not ${value}`]
    }),
  )
}
