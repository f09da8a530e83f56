import { workloads } from '../steps/workloads.mjs'

/** @typedef {(typeof engines)[number]} Engine */
export const engines = /** @type {const} */ (['auto', 'worker', 'inline'])

/**
 * How a network is trained. `alone`: by one process. `ddp`: by replicas that exchange gradients during
 * the backward pass; `ddp-sequential`: after it; `ddp-silent`: not at all, which shows what the exchange
 * costs. `1f1b`: by a pipeline.
 *
 * @typedef {'alone' | 'ddp' | 'ddp-sequential' | 'ddp-silent' | '1f1b'} Mode
 *
 * @typedef {object} Plan - what one job measures
 * @property {readonly import('../steps/workloads.mjs').Workload[]} workloads
 * @property {readonly Mode[]} modes
 * @property {number} microbatches
 * @property {number} bucketMiB - size of the buckets of gradients
 * @property {Engine} engine - of our ranks
 */

/** What every mode trains. */
export const networks = workloads.filter(({ kind }) => kind === 'mlp')

/** What replicas train. */
export const replicated = workloads.filter(({ kind }) => ['mlp', 'gpt', 'cnn'].includes(kind))

/**
 * Whether a mode is measured: pipelines are those of linear layers.
 *
 * @param {import('../steps/workloads.mjs').Workload} workload
 * @param {Mode} mode
 */
export function trains({ kind }, mode) {
  return mode !== '1f1b' || kind === 'mlp'
}

/**
 * @param {number} ranks
 * @param {boolean} isPeer - peers have only one way of DDP
 * @returns {readonly Mode[]}
 */
export function modesOf(ranks, isPeer) {
  if (ranks === 1) return ['alone']
  return isPeer ? ['ddp', '1f1b'] : ['ddp', 'ddp-sequential', 'ddp-silent', '1f1b']
}
