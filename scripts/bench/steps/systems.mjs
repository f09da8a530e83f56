import { fileURLToPath } from 'node:url'
import { gpusAreHidden, libraryPath, readTensorFlowManifest } from '@tsrun/core'
import { findTorchPython, oneThread, runRanks } from '../programs.mjs'
import { isForCpu } from './workloads.mjs'

const rank = fileURLToPath(new URL('step-rank.mjs', import.meta.url))
const peer = fileURLToPath(new URL('torch_steps.py', import.meta.url))

export const backends = /** @type {const} */ (['tensorflow', 'webgpu', 'wasm', 'cpu'])

/**
 * @typedef {import('./workloads.mjs').Workload} Workload
 *
 * @typedef {object} System
 * @property {string} name - of a backend, or `torch`, or `torch cuda`
 * @property {(workload: Workload) => boolean} takes - whether it runs a workload
 * @property {(output: string, workloads: string) => import('../programs.mjs').CommandLine} commandLine
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
    name: backend,
    takes: backend === 'cpu' ? isForCpu : () => true,
    commandLine: (output, workloads) => ({
      command: process.execPath,
      args: [rank, output, backend, workloads],
      env: { ...oneThread, ...(backend === 'tensorflow' && cudaLibraries()) },
    }),
  }
}

/** The environment that `tsrun` gives its ranks. */
function cudaLibraries() {
  const manifest = readTensorFlowManifest()
  return manifest && { LD_LIBRARY_PATH: libraryPath(manifest) }
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
export async function measure({ name, takes, commandLine }, workloads) {
  const argument = JSON.stringify(workloads.filter(takes))
  return JSON.parse(await runRanks(name, (output) => commandLine(output, argument)))
}
