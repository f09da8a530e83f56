import { fileURLToPath } from 'node:url'
import { findTorchPython, oneThread, runRanks, torchrunLine, tsrunLine } from '../programs.mjs'

const rank = fileURLToPath(new URL('training-rank.mjs', import.meta.url))
const peer = fileURLToPath(new URL('torch_training.py', import.meta.url))

export const backends = /** @type {const} */ (['tensorflow', 'wasm'])

/**
 * @typedef {object} System
 * @property {string} name - of a backend, or `torch`
 * @property {boolean} isPeer
 * @property {(ranks: number, output: string, plan: string) => import('../programs.mjs').CommandLine} commandLine
 *
 * @typedef {object} Sample
 * @property {string} workload
 * @property {import('./plan.mjs').Mode} mode
 * @property {number[]} ms
 *
 * @typedef {{ device: string, threads: number, samples: Sample[] } | { skipped: string }} Measured
 */

/**
 * @param {(typeof backends)[number]} backend
 * @returns {System}
 */
export function backendSystem(backend) {
  return {
    name: backend,
    isPeer: false,
    commandLine: (ranks, output, plan) => ({
      ...tsrunLine(ranks, rank, [output, backend, plan]),
      env: oneThread,
    }),
  }
}

/**
 * @param {NodeJS.ProcessEnv} [env]
 * @returns {Promise<System[] | { skipped: string }>}
 */
export async function torchSystems(env = process.env) {
  const found = await findTorchPython(env)
  if ('skipped' in found) return found
  return [
    {
      name: 'torch',
      isPeer: true,
      commandLine: (ranks, output, plan) =>
        torchrunLine(found.python, ranks, peer, [output, plan], env),
    },
  ]
}

/**
 * Runs a plan in a new job.
 *
 * @param {System} system
 * @param {number} ranks
 * @param {import('./plan.mjs').Plan} plan
 * @returns {Promise<Measured>}
 * @throws ERR_BENCH_RUN
 */
export async function measure({ name, commandLine }, ranks, plan) {
  const text = await runRanks(`${name} with ${ranks} ranks`, (output) =>
    commandLine(ranks, output, JSON.stringify(plan)),
  )
  return JSON.parse(text)
}
