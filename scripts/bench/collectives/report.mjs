import { formatBytes } from '@tsrun/core'
import { markdownTable, significant } from '../figures.mjs'
import { nameOf } from './systems.mjs'

/** @typedef {import('./rounds.mjs').Row} Row */

/**
 * A table of the rows. Each of ours has its time as a multiple of that of each peer (less is better).
 *
 * @param {readonly Row[]} rows
 * @returns {string}
 */
export function formatRows(rows) {
  const ordered = rows.toSorted((a, b) => place(rows, a) - place(rows, b))
  const peers = [...new Set(rows.filter((row) => row.system !== 'tsrun').map(nameOf))]
  const headings = ['operation', 'bytes', 'system', 'p50 us', 'p99 us', 'algbw GB/s', 'busbw GB/s']
  return markdownTable(
    [...headings, ...peers.map((peer) => `x ${peer}`)],
    ordered.map((row) => [
      row.op,
      formatBytes(row.bytes),
      nameOf(row),
      row.p50Us,
      row.p99Us,
      row.algbwGBs,
      row.busbwGBs,
      ...peers.map((peer) => ratio(rows, row, peer)),
    ]),
  )
}

/**
 * The position of the first row of the same operation and size: the sort is stable, so that rows
 * of one comparison come together in the order of the systems.
 *
 * @param {readonly Row[]} rows
 * @param {Row} row
 */
function place(rows, row) {
  return rows.findIndex((other) => other.op === row.op && other.bytes === row.bytes)
}

/**
 * @param {readonly Row[]} rows
 * @param {Row} row
 * @param {string} peer
 */
function ratio(rows, row, peer) {
  if (row.system !== 'tsrun') return ''
  const other = rows.find(
    (candidate) =>
      nameOf(candidate) === peer && candidate.op === row.op && candidate.bytes === row.bytes,
  )
  return other === undefined ? '' : significant(row.p50Us / other.p50Us, 3)
}
