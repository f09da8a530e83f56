import { fileURLToPath } from 'node:url'
import { gpusAreHidden, readTensorFlowManifest } from '@tsrun/core'
import { findTorchPython, oneThread } from '../programs.mjs'
import * as turns from '../turns.mjs'
import { isForCpu } from './workloads.mjs'

const rank = new URL('step-rank.mjs', import.meta.url)
const peer = fileURLToPath(new URL('torch_steps.py', import.meta.url))

export const backends = /** @type {const} */ (['tensorflow', 'webgpu', 'wasm', 'wasm-alone', 'cpu'])

/**
 * @typedef {import('./workloads.mjs').Workload} Workload
 *
 * @typedef {turns.System & { takes: (workload: Workload) => boolean }} System - `torch cuda` is another;
 *   `takes`: whether it runs a workload
 *
 * @typedef {object} Sample
 * @property {string} workload
 * @property {[forward: number, backward: number, update: number][]} times - milliseconds
 *
 * @typedef {{ device: string, threads: number, samples: Sample[] } | { skipped: string }} Measured
 */

/**
 * @param {(typeof backends)[number]} backend
 * @returns {System}
 */
export function backendSystem(backend) {
  return {
    ...turns.backendSystem(backend, rank),
    takes: (workload) => takes(backend, workload),
  }
}

/**
 * @param {(typeof backends)[number]} backend
 * @param {Workload} workload
 */
function takes(backend, workload) {
  if (backend === 'cpu') return isForCpu(workload)
  // Batch normalization blocks, and webgpu cannot.
  return backend !== 'webgpu' || workload.kind !== 'norm'
}

/**
 * PyTorch on the CPU, and on the first GPU too if tensorflow computes on one.
 *
 * @param {NodeJS.ProcessEnv} [env]
 * @returns {Promise<System[] | { skipped: string }>}
 */
export async function torchSystems(env = process.env) {
  const found = await findTorchPython(env)
  if ('skipped' in found) return found
  const hasGpu =
    readTensorFlowManifest(env)?.package.endsWith('-gpu') === true && !gpusAreHidden(env)
  return (hasGpu ? ['cpu', 'cuda'] : ['cpu']).map((device) => ({
    name: device === 'cpu' ? 'torch' : `torch ${device}`,
    takes: () => true,
    commandLine: (output, workloads) => ({
      command: found.python,
      args: [peer, output, workloads, device],
      env: oneThread,
    }),
  }))
}

/**
 * Runs the workloads that the system takes in a new process.
 *
 * @param {System} system
 * @param {readonly Workload[]} workloads
 * @returns {Promise<Measured>}
 * @throws ERR_BENCH_RUN
 */
export async function measure(system, workloads) {
  return await turns.measure(system, workloads.filter(system.takes))
}
