import { availableParallelism } from 'node:os'
import { fileURLToPath } from 'node:url'
import { formatBytes } from '@tsrun/core'
import { countFor } from '../collectives/plan.mjs'
import { markdownTable, significant } from '../figures.mjs'
import { runRanks, tsrunLine } from '../programs.mjs'
import { predict } from './predict.mjs'

const rank = fileURLToPath(new URL('../tune/tune-rank.mjs', import.meta.url))
const transports = /** @type {const} */ (['shared-memory', 'tcp'])

/**
 * @typedef {object} Check
 * @property {string} op
 * @property {string} transport
 * @property {number} bytes
 * @property {number} ranks
 * @property {string} algorithm
 * @property {number} predictedUs
 * @property {number} measuredUs - the tenth percentile: with little of what other programs take
 * @property {number} ratio - predicted / measured
 */

/**
 * Runs the algorithms on this host, and puts what the simulation says beside their times.
 *
 * @param {import('./machine.mjs').MachineCosts} costs
 * @param {{ ops: readonly import('./predict.mjs').Operation[], sizes: readonly number[], ranks: readonly number[] }} what
 * @returns {Promise<Check[]>}
 */
export async function checkHere(costs, { ops, sizes, ranks }) {
  /** @type {Check[]} */
  const checks = []
  for (const size of ranks) {
    for (const transport of transports) {
      const predictions = ops.flatMap((op) =>
        sizes.map((bytes) => predict(clusterHere(costs, size, transport), op, bytes)),
      )
      const steps = predictions.map(({ op, bytes, algorithms }) => {
        const [warmUps, repeats] =
          bytes <= 2 ** 16 ? [1500, 200] : bytes <= 2 ** 20 ? [20, 30] : [2, 6]
        const names = algorithms.map(({ algorithm }) => nameInCall(algorithm)).join(',')
        return [op, countFor(op, bytes, size), warmUps, repeats, names].join(':')
      })
      console.error(`check: ${transport}, ${size} ranks`)
      const text = await runRanks(`${transport} inline`, (output) =>
        tsrunLine(size, rank, [output, transport, 'inline', ...steps]),
      )
      const measured = text
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line))
      for (const { op, bytes, algorithms } of predictions) {
        for (const { algorithm, us } of algorithms) {
          const found = measured.find(
            (line) =>
              line.op === op && line.bytes === bytes && line.algorithm === nameInCall(algorithm),
          )
          if (us === null || found === undefined) continue
          checks.push({
            ...{ op, transport, bytes, ranks: size, algorithm },
            ...{ predictedUs: us, measuredUs: significant(found.lowUs) },
            ratio: significant(us / found.lowUs, 3),
          })
        }
      }
    }
  }
  return checks
}

/**
 * @param {import('./machine.mjs').MachineCosts} costs
 * @param {number} ranks
 * @param {'shared-memory' | 'tcp'} transport
 * @returns {import('./predict.mjs').Cluster}
 */
function clusterHere(costs, ranks, transport) {
  const within = transport === 'tcp' ? 'sockets' : 'sharedMemory'
  const link = { latency: 0, bytesPerSecond: Infinity }
  return { ranks, ranksPerHost: ranks, cores: availableParallelism(), within, link, costs }
}

/**
 * Slots cannot be asked for: small collectives take them.
 *
 * @param {string} algorithm
 */
function nameInCall(algorithm) {
  return algorithm === 'flat' ? 'auto' : algorithm
}

/** @param {readonly Check[]} checks */
export function formatChecks(checks) {
  const keyOf = (/** @type {Check} */ { op, transport, bytes, ranks }) =>
    [op, transport, bytes, ranks].join(' ')
  const keys = [...new Set(checks.map(keyOf))]
  const groups = keys.map((key) => checks.filter((check) => keyOf(check) === key))
  const table = markdownTable(
    ['operation', 'transport', 'ranks', 'bytes', 'predicted / measured us'],
    groups.map((group) => {
      const { op, transport, ranks, bytes } = /** @type {Check} */ (group[0])
      const pairs = group.map(
        ({ algorithm, predictedUs, measuredUs, ratio }) =>
          `${algorithm} ${predictedUs} / ${measuredUs} = ${ratio}`,
      )
      return [op, transport, ranks, formatBytes(bytes), pairs.join(', ')]
    }),
  )
  return `${table}\n\n${summarize(checks, groups)}`
}

/**
 * How well it agrees: the typical ratio either way, and what taking the predicted best would cost.
 *
 * @param {readonly Check[]} checks
 * @param {readonly (readonly Check[])[]} groups - by operation, transport, ranks and size
 */
function summarize(checks, groups) {
  const mean = (/** @type {readonly number[]} */ logs) =>
    significant(Math.exp(logs.reduce((sum, log) => sum + log, 0) / logs.length), 3)
  const errors = checks.map(({ ratio }) => Math.abs(Math.log(ratio)))
  const losses = groups.map((group) => {
    const taken = group.reduce((a, b) => (b.predictedUs < a.predictedUs ? b : a))
    return Math.log(taken.measuredUs / Math.min(...group.map(({ measuredUs }) => measuredUs)))
  })
  return [
    `The ratio is off by a factor of ${mean(errors)} (geometric mean over ${checks.length} times).`,
    `What is predicted to be the best takes ${mean(losses)} times as long as what is measured to be.`,
  ].join('\n')
}
