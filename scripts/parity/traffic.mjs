// What ranks send in a step: counted, and as it follows from the layout.

const COLLECTIVE = /^(allReduce|allGather|reduceScatter|broadcast|reduce|allToAll)(Sync)?$/
const MESSAGE = /^(i?send)(Sync)?$/

/**
 * What one rank sends in the groups of an axis.
 *
 * @typedef {object} Traffic
 * @property {number} collectives - those on arrays
 * @property {number} bytes - the larger of input and output of each of them, in sum
 * @property {number} messages
 * @property {number} sent - bytes of the messages
 */

/** @returns {Traffic} */
export function noTraffic() {
  return { collectives: 0, bytes: 0, messages: 0, sent: 0 }
}

/**
 * @param {readonly Traffic[]} all
 * @returns {Traffic}
 */
export function addTraffic(all) {
  const total = noTraffic()
  for (const each of all) {
    for (const key of /** @type {(keyof Traffic)[]} */ (Object.keys(total))) total[key] += each[key]
  }
  return total
}

/**
 * Wraps a group so that its collectives and messages are counted.
 *
 * @param {import('@tsrun/distributed').ProcessGroup} group
 * @param {Traffic} traffic
 * @returns {import('@tsrun/distributed').ProcessGroup}
 */
export function countingGroup(group, traffic) {
  return new Proxy(group, {
    get(target, key) {
      const value = Reflect.get(target, key, target)
      if (typeof value !== 'function') return value
      const call = /** @type {(...args: unknown[]) => unknown} */ (value)
      if (target.size === 1 || typeof key !== 'string') return call.bind(target)
      return (/** @type {unknown[]} */ ...args) => {
        const sizes = args.filter(ArrayBuffer.isView).map(({ byteLength }) => byteLength)
        const name = key.replace(/Init$/, '')
        const count = () => {
          if (COLLECTIVE.test(name)) {
            traffic.collectives++
            traffic.bytes += Math.max(...sizes)
          } else if (MESSAGE.test(name)) {
            traffic.messages++
            traffic.sent += Math.max(...sizes)
          }
        }
        const result = call.apply(target, args)
        if (name === key) count()
        else
          countRuns(/** @type {import('@tsrun/distributed').PersistentOperation} */ (result), count)
        return result
      }
    },
  })
}

/**
 * Counts the runs of a prepared operation.
 *
 * @param {import('@tsrun/distributed').PersistentOperation} prepared
 * @param {() => void} count
 */
function countRuns(prepared, count) {
  const [start, run] = [prepared.start.bind(prepared), prepared.run.bind(prepared)]
  prepared.start = () => {
    count()
    start()
  }
  prepared.run = () => {
    count()
    return run()
  }
}

/**
 * The figures of one rank's traffic in a step, on one axis, that follow from the layout. Figures that are
 * left out have no formula.
 *
 * @typedef {Partial<Traffic>} Expected
 *
 * @typedef {object} Place
 * @property {number} stage - the rank on the axis pp
 * @property {{ collectives: number, bytes: number }} averaging - the traffic of one step of data
 *   parallelism or ZeRO, from the formulas of the library
 */

/** The norm of the gradients is summed in each group whose ranks have different parts: one float64. */
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
 * Every example crosses each boundary once, and its gradient crosses it back. The shape of the inputs
 * (nine int32), four float64 of the last stage (loss, count, how the loss is summed, scale of the gradients)
 * and the norm are sent to all ranks.
 *
 * @param {import('./configurations.mjs').Configuration} configuration
 * @param {import('./models.mjs').Problem} problem
 * @param {Place} place
 */
function pipelineTraffic(configuration, problem, { stage }) {
  const { dp = 1, shard = 1, pp = 1, cp = 1, tp = 1, sequence = false } = configuration
  const { chunks = 1, microbatches = 4 } = configuration
  const isV = configuration.schedule?.endsWith('-v') === true
  const placement = Array.from({ length: pp * chunks }, (_, each) =>
    isV && each >= pp ? 2 * pp - 1 - each : each % pp,
  )
  // From one stage of a rank to the next on the same rank nothing is sent.
  const crossings = placement
    .flatMap((rank, each) => (rank === stage ? [placement[each - 1], placement[each + 1]] : []))
    .filter((other) => other !== undefined && other !== stage).length
  const rows = problem.examples / (dp * shard)
  const example = (4 * problem.boundary) / (cp * (sequence ? tp : 1))
  return {
    collectives: 2 + NORM.collectives,
    bytes: 9 * 4 + 4 * 8 + NORM.bytes,
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
 * @param {Readonly<Record<string, Traffic>>} found - by axis
 * @param {Readonly<Record<string, Expected>>} expected
 * @returns {string[]} what differs
 */
export function differences(found, expected) {
  return Object.entries(expected).flatMap(([axis, wanted]) =>
    Object.entries(wanted).flatMap(([key, value]) => {
      const own = found[axis]?.[/** @type {keyof Traffic} */ (key)]
      return own === value ? [] : [`${axis} ${key}: ${own}, not ${value}`]
    }),
  )
}
