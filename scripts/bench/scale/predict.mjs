import { formatBytes } from '@tsrun/core'
import { algorithmFor, algorithmsOn, simulate } from './simulation/simulate.ts'
import { countFor } from '../collectives/plan.mjs'
import { markdownTable, significant } from '../figures.mjs'

/**
 * @typedef {import('./simulation/cluster.ts').Cluster} Cluster
 * @typedef {import('../collectives/plan.mjs').Operation | 'reduce' | 'gather' | 'scatter'} Operation
 *
 * @typedef {object} Time
 * @property {string} algorithm
 * @property {number | null} us - null where a simulation would take too long
 * @property {import('./simulation/simulate.ts').Method | null} method
 *
 * @typedef {object} Prediction
 * @property {string} op
 * @property {number} bytes - of the whole buffer
 * @property {number} ranks
 * @property {number} hosts
 * @property {Time[]} algorithms - from the fastest to the slowest
 * @property {string} best
 * @property {number} bestUs
 * @property {string} chosen - by the built-in tuning table
 * @property {number | null} chosenUs
 * @property {number | null} loss - the time of the chosen one as a multiple of the best
 */

/**
 * @param {Cluster} cluster
 * @param {Operation} op
 * @param {number} size - bytes of the whole buffer; slices have at least one element
 * @returns {Prediction}
 */
export function predict(cluster, op, size) {
  const { ranks, ranksPerHost } = cluster
  const bytes = 4 * countFor(op, size, ranks)
  const call = { name: /** @type {Exclude<Operation, 'sendRecv'>} */ (op), bytes }
  const algorithms = algorithmsOn(cluster, call).map((algorithm) => {
    const simulated = simulate(cluster, call, algorithm)
    if (simulated === undefined) return { algorithm, us: null, method: null }
    return { algorithm, us: significant(simulated.seconds * 1e6), method: simulated.method }
  })
  algorithms.sort((a, b) => (a.us ?? Infinity) - (b.us ?? Infinity))
  const chosen = algorithmFor(cluster, call)
  const chosenUs = algorithms.find(({ algorithm }) => algorithm === chosen)?.us ?? null
  const [best] = algorithms
  const bestUs = best?.us ?? NaN
  return {
    ...{ op, bytes, ranks, hosts: ranks / ranksPerHost, algorithms },
    ...{ best: best?.algorithm ?? '', bestUs, chosen, chosenUs },
    loss: chosenUs === null ? null : significant(chosenUs / bestUs, 3),
  }
}

/** @param {readonly Prediction[]} rows */
export function formatPredictions(rows) {
  const table = markdownTable(
    [
      'operation',
      'bytes',
      'ranks',
      'best',
      'us',
      'table',
      'x best',
      'others, as multiples of the best',
    ],
    rows.map(({ op, bytes, ranks, best, bestUs, chosen, loss, algorithms }) => [
      ...[op, formatBytes(bytes), ranks, nameOf(algorithms[0]), bestUs],
      ...[chosen === best ? '' : chosen, chosen === best ? '' : (loss ?? 'unknown')],
      algorithms
        .slice(1)
        .map((time) => `${nameOf(time)} ${time.us === null ? '?' : multiple(time.us / bestUs)}`)
        .join(', '),
    ]),
  )
  return [
    table,
    '',
    'table: what the built-in tuning table chooses, where that is not the best',
    '*: not all ranks were simulated, because the others do the same; ?: too many messages',
  ].join('\n')
}

/** @param {Time | undefined} time */
function nameOf(time) {
  if (time === undefined) return ''
  return time.method === null || time.method === 'all ranks' ? time.algorithm : `${time.algorithm}*`
}

/** @param {number} ratio */
function multiple(ratio) {
  return ratio < 1000 ? significant(ratio, 3) : Math.round(ratio)
}
