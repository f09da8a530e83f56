import { markdownTable, median, significant } from '../figures.mjs'

/**
 * @typedef {object} Round - of one system with some ranks
 * @property {string} system
 * @property {number} ranks
 * @property {string} device
 * @property {number} threads
 * @property {readonly import('./systems.mjs').Sample[]} samples
 *
 * @typedef {object} Row
 * @property {string} workload
 * @property {import('./plan.mjs').Mode} mode
 * @property {number} ranks
 * @property {string} system - a backend of ours, or `torch`
 * @property {string} device
 * @property {number} threads - of a rank
 * @property {number} stepMs
 * @property {number | null} ratioToTorch - of `stepMs`; null without torch
 * @property {number | null} speedup - over the same system alone; null where that was not measured
 * @property {number | null} exposedMs - what the gradients add to a step; null for other modes
 */

/**
 * Medians over the rounds of the medians of each round, in the order of the first measurement.
 *
 * @param {readonly Round[]} rounds
 * @returns {Row[]}
 */
export function summarize(rounds) {
  /** @type {Map<string, Omit<Row, 'stepMs' | 'ratioToTorch' | 'speedup' | 'exposedMs'> & { medians: number[] }>} */
  const cells = new Map()
  for (const { samples, system, ranks, device, threads } of rounds) {
    for (const { workload, mode, ms } of samples) {
      const key = keyOf({ workload, mode, ranks, system })
      const cell = cells.get(key) ?? { workload, mode, ranks, system, device, threads, medians: [] }
      cell.medians.push(median(ms))
      cells.set(key, cell)
    }
  }
  const stepOf = (/** @type {Pick<Row, 'workload' | 'mode' | 'ranks' | 'system'>} */ which) => {
    const cell = cells.get(keyOf(which))
    return cell === undefined ? undefined : median(cell.medians)
  }
  return [...cells.values()].map(({ medians, ...cell }) => {
    const stepMs = median(medians)
    const over = (/** @type {number | undefined} */ other) =>
      other === undefined ? null : significant(stepMs / other, 3)
    const alone = stepOf({ ...cell, mode: 'alone', ranks: 1 })
    const silent = stepOf({ ...cell, mode: 'ddp-silent' })
    const travels = cell.mode === 'ddp' || cell.mode === 'ddp-sequential'
    return {
      ...cell,
      stepMs: significant(stepMs),
      ratioToTorch: over(stepOf({ ...cell, system: 'torch' })),
      speedup: alone === undefined ? null : significant(alone / stepMs, 3),
      exposedMs: travels && silent !== undefined ? significant(stepMs - silent, 3) : null,
    }
  })
}

/** @param {Pick<Row, 'workload' | 'mode' | 'ranks' | 'system'>} which */
function keyOf({ workload, mode, ranks, system }) {
  return [workload, mode, ranks, system].join(' ')
}

/** @param {readonly Row[]} rows */
export function formatRows(rows) {
  return markdownTable(
    [
      'workload',
      'mode',
      'ranks',
      'system',
      'device',
      'step ms',
      'x torch',
      'speedup',
      'exposed ms',
    ],
    rows.map((row) => [
      row.workload,
      row.mode,
      row.ranks,
      row.system,
      row.device,
      row.stepMs,
      row.ratioToTorch ?? '',
      row.speedup ?? '',
      row.exposedMs ?? '',
    ]),
  )
}
