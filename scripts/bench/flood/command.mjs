import { fileURLToPath } from 'node:url'
import { readInteger } from '../command-line.mjs'
import { formatRecords, printRows } from '../figures.mjs'
import { runRanks, tsrunLine } from '../programs.mjs'

const script = fileURLToPath(new URL('flooded-rank.mjs', import.meta.url))

/** @type {import('../command-line.mjs').Command} */
export const flood = {
  summary: 'what connections that belong to no job cost one that runs, at its store and data ports',
  options: {
    connections: { value: '<n>', default: '10000', description: 'at each of the two ports' },
    rate: { value: '<n>', default: '1000', description: 'connections in a second' },
    tls: { description: 'of a job with --tls' },
    json: { description: 'one JSON object for each port instead of the table' },
  },
  run: async (values) => {
    const connections = readInteger('connections', values['connections'], 1, 1_000_000)
    const rate = readInteger('rate', values['rate'], 1, 100_000)
    const tls = values['tls'] !== undefined
    const text = await runRanks('tsrun', (output) => ({
      ...tsrunLine(2, script, [output, String(connections), String(rate)]),
      env: { TSRUN_TLS: tls ? '1' : '0', TSRUN_LOG_LEVEL: 'silent' },
    }))
    const rows = rowsOf(JSON.parse(text), { benchmark: 'flood', tls })
    printRows(rows, values['json'] !== undefined, formatRecords)
    return 0
  },
}

/**
 * @typedef {import('./flooded-rank.mjs').Flood} Flood
 *
 * @typedef {object} RankResult - what each rank has measured
 * @property {number} joiningMs
 * @property {number} mostAtDataPort
 * @property {number} stepMs
 * @property {number} busyStepMs
 * @property {number} mostAtStore
 * @property {Flood} [atDataPort]
 * @property {Flood} [atStore]
 */

/**
 * @param {[RankResult, RankResult]} ranks
 * @param {Record<string, string | number | boolean>} set
 */
function rowsOf([zero, one], set) {
  const floodOf = (/** @type {Flood | undefined} */ result) => {
    const { made = 0, ended = 0, admitted = 0, seconds = 0 } = result ?? {}
    return { connections: made, seconds: round(seconds, 1), ended, admitted }
  }
  return [
    {
      ...{ ...set, port: 'data', ...floodOf(one.atDataPort), descriptors: zero.mostAtDataPort },
      ...{ joiningMs: round(one.joiningMs), stepMs: '', busyStepMs: '', ratio: '' },
    },
    {
      ...{ ...set, port: 'store', ...floodOf(one.atStore), descriptors: zero.mostAtStore },
      ...{ joiningMs: '', stepMs: round(zero.stepMs, 2), busyStepMs: round(zero.busyStepMs, 2) },
      ratio: round(zero.busyStepMs / zero.stepMs, 2),
    },
  ]
}

/**
 * @param {number} value
 * @param {number} [digits]
 */
function round(value, digits = 0) {
  return Number(value.toFixed(digits))
}
