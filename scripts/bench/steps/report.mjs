import { markdownTable, median, significant } from '../figures.mjs'
import { operationsOf, stepOperationsOf } from './workloads.mjs'

/**
 * @typedef {Exclude<import('./systems.mjs').Measured, { skipped: string }>} Round
 * @typedef {import('./workloads.mjs').Workload} Workload
 *
 * @typedef {object} Row
 * @property {string} workload
 * @property {string} system - a backend of ours, or `torch`
 * @property {string} device
 * @property {number} threads
 * @property {number} forwardMs
 * @property {number | null} backwardMs - null for a product
 * @property {number | null} updateMs - null where a step ends with the backward pass
 * @property {number} stepMs - the whole
 * @property {number | null} gflops - 10^9 operations a second: of the forward pass, or of the product;
 *   null without products
 * @property {number | null} share - of the step: what its products would take at the highest rate of
 *   the workload of kind `matmul` on the same device, on any system; null without that workload
 * @property {number | null} ratioToTorch - of `stepMs`; null without torch on the same device
 */

/**
 * Medians over the rounds of the medians of each round.
 *
 * @param {ReadonlyMap<string, readonly Round[]>} rounds - by system
 * @param {readonly Workload[]} workloads
 * @returns {Row[]}
 */
export function summarize(rounds, workloads) {
  const rows = workloads.map((workload) => ({
    workload,
    own: [...rounds].flatMap(([system, list]) => rowOf(system, list, workload)),
  }))
  const products = rows.flatMap(({ workload, own }) => (workload.kind === 'matmul' ? own : []))
  return rows.flatMap(({ workload, own }) =>
    own.map((row) => {
      const onDevice = (/** @type {{ device: string }} */ { device }) => device === row.device
      const limit = Math.max(0, ...products.filter(onDevice).map(({ gflops }) => gflops ?? 0))
      const share = stepOperationsOf(workload) / 1e6 / limit / row.stepMs
      const peer = own.find((other) => onDevice(other) && other.system.startsWith('torch'))
      return {
        ...row,
        share: limit > 0 && row.gflops !== null ? significant(share, 3) : null,
        ratioToTorch: peer === undefined ? null : significant(row.stepMs / peer.stepMs, 3),
      }
    }),
  )
}

/**
 * @param {string} system
 * @param {readonly Round[]} rounds
 * @param {Workload} workload
 * @returns {Omit<Row, 'share' | 'ratioToTorch'>[]}
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
  const isProduct = workload.kind === 'matmul'
  const updates = !isProduct && workload.updates !== false
  const operations = operationsOf(workload)
  return [
    {
      workload: workload.name,
      system,
      device: first.device,
      threads: first.threads,
      forwardMs: significant(forward),
      backwardMs: isProduct ? null : significant(middle((times) => times[1])),
      updateMs: updates ? significant(middle((times) => times[2])) : null,
      stepMs: significant(middle((times) => times[0] + times[1] + times[2])),
      gflops: operations === 0 ? null : significant(operations / forward / 1e6, 3),
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
      'share',
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
      row.gflops ?? '',
      row.share ?? '',
      row.ratioToTorch ?? '',
    ]),
  )
}
