import { markdownTable, median, significant } from '../figures.mjs'
import { operationsOf } from './workloads.mjs'

/**
 * @typedef {Exclude<import('./systems.mjs').Measured, { skipped: string }>} Round
 *
 * @typedef {object} Row
 * @property {string} workload
 * @property {string} system - a backend of ours, or `torch`
 * @property {string} device
 * @property {number} threads
 * @property {number} forwardMs
 * @property {number | null} backwardMs - null for a product
 * @property {number | null} updateMs
 * @property {number} stepMs - the whole
 * @property {number} gflops - 10^9 operations a second: of the forward pass, or of the product
 * @property {number | null} ratioToTorch - of `stepMs`; null without torch on the same device
 */

/**
 * Medians over the rounds of the medians of each round.
 *
 * @param {ReadonlyMap<string, readonly Round[]>} rounds - by system
 * @param {readonly import('./workloads.mjs').Workload[]} workloads
 * @returns {Row[]}
 */
export function summarize(rounds, workloads) {
  return workloads.flatMap((workload) => {
    const rows = [...rounds].flatMap(([system, list]) => rowOf(system, list, workload))
    const torch = rows.filter(({ system }) => system.startsWith('torch'))
    return rows.map((row) => {
      const peer = torch.find(({ device }) => device === row.device)
      const ratioToTorch = peer === undefined ? null : significant(row.stepMs / peer.stepMs, 3)
      return { ...row, ratioToTorch }
    })
  })
}

/**
 * @param {string} system
 * @param {readonly Round[]} rounds
 * @param {import('./workloads.mjs').Workload} workload
 * @returns {Omit<Row, 'ratioToTorch'>[]}
 */
function rowOf(system, rounds, workload) {
  const [first] = rounds
  const samples = rounds.flatMap(({ samples }) =>
    samples.filter((sample) => sample.workload === workload.name),
  )
  if (first === undefined || samples.length === 0) return []
  const middle = (/** @type {(times: [number, number, number]) => number} */ part) =>
    median(samples.map(({ times }) => median(times.map(part))))
  const forward = middle((times) => times[0])
  const trains = workload.kind !== 'matmul'
  return [
    {
      workload: workload.name,
      system,
      device: first.device,
      threads: first.threads,
      forwardMs: significant(forward),
      backwardMs: trains ? significant(middle((times) => times[1])) : null,
      updateMs: trains ? significant(middle((times) => times[2])) : null,
      stepMs: significant(middle((times) => times[0] + times[1] + times[2])),
      gflops: significant(operationsOf(workload) / forward / 1e6, 3),
    },
  ]
}

/** @param {readonly Row[]} rows */
export function formatRows(rows) {
  return markdownTable(
    [
      'workload',
      'system',
      'device',
      'forward ms',
      'backward',
      'update',
      'step ms',
      'GFLOP/s',
      'x torch',
    ],
    rows.map((row) => [
      row.workload,
      row.system,
      row.device,
      row.forwardMs,
      row.backwardMs ?? '',
      row.updateMs ?? '',
      row.stepMs,
      row.gflops,
      row.ratioToTorch ?? '',
    ]),
  )
}
