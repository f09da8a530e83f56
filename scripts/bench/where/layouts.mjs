/**
 * @typedef {object} Layout
 * @property {string} name
 * @property {number} ranks
 * @property {Readonly<Partial<Record<'dp' | 'pp' | 'tp', number>>>} mesh
 * @property {1 | 2 | 3} [zero]
 *
 * @typedef {object} Plan - what one job measures
 * @property {Layout} layout
 * @property {readonly import('../steps/workloads.mjs').Workload[]} workloads
 * @property {'auto' | 'worker' | 'inline'} engine
 * @property {number} microbatches - of pipelines
 * @property {number | undefined} repeats - default: that of the workload
 */

/** @type {readonly Layout[]} */
export const layouts = [
  { name: 'single', ranks: 1, mesh: { dp: 1 } },
  { name: 'dp2', ranks: 2, mesh: { dp: 2 } },
  { name: 'zero1', ranks: 2, mesh: { dp: 2 }, zero: 1 },
  { name: 'zero2', ranks: 2, mesh: { dp: 2 }, zero: 2 },
  { name: 'zero3', ranks: 2, mesh: { dp: 2 }, zero: 3 },
  { name: 'tp2', ranks: 2, mesh: { tp: 2 } },
  { name: 'pp2', ranks: 2, mesh: { pp: 2 } },
  { name: 'dp2-pp2', ranks: 4, mesh: { dp: 2, pp: 2 } },
]
