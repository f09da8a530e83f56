// Systems that take turns: programs of one process on each of our backends, and of PyTorch.
import { fileURLToPath } from 'node:url'
import { libraryPath, readTensorFlowManifest } from '@tsrun/core'
import { findTorchPython, oneThread, runRanks } from './programs.mjs'

/**
 * @typedef {object} System
 * @property {string} name - of a backend, or `torch`
 * @property {(output: string, plan: string) => import('./programs.mjs').CommandLine} commandLine
 */

/**
 * A program of one process that computes on a backend: SCRIPT OUTPUT BACKEND PLAN.
 *
 * @param {string} name - of the backend; `wasm-alone` is wasm without a BLAS
 * @param {URL} script
 * @returns {System}
 */
export function backendSystem(name, script) {
  const isAlone = name === 'wasm-alone'
  return {
    name,
    commandLine: (output, plan) => ({
      command: process.execPath,
      args: [fileURLToPath(script), output, isAlone ? 'wasm' : name, plan],
      env: {
        ...oneThread,
        ...(name === 'tensorflow' && cudaLibraries()),
        ...(isAlone && { TSRUN_BLAS: 'off' }),
      },
    }),
  }
}

/** The environment that `tsrun` gives its ranks. */
function cudaLibraries() {
  const manifest = readTensorFlowManifest()
  return manifest && { LD_LIBRARY_PATH: libraryPath(manifest) }
}

/**
 * A program of one process of PyTorch: SCRIPT OUTPUT PLAN.
 *
 * @param {URL} script
 * @returns {Promise<System[] | { skipped: string }>}
 */
export async function torchSystems(script) {
  const found = await findTorchPython(process.env)
  if ('skipped' in found) return found
  return [
    {
      name: 'torch',
      commandLine: (output, plan) => ({
        command: found.python,
        args: [fileURLToPath(script), output, plan],
        env: oneThread,
      }),
    },
  ]
}

/**
 * The systems of PyTorch, if it is asked for; none, with a message on stderr, where it is missing.
 *
 * @template S
 * @param {readonly string[]} peers
 * @param {() => Promise<S[] | { skipped: string }>} find
 * @returns {Promise<S[]>}
 */
export async function ifAsked(peers, find) {
  const found = peers.length === 0 ? [] : await find()
  if (!('skipped' in found)) return found
  console.error(`skipped: ${found.skipped}`)
  return []
}

/**
 * Runs the program of a system in a new process.
 *
 * @param {System} system
 * @param {object} plan
 * @throws ERR_BENCH_RUN
 */
export async function measure({ name, commandLine }, plan) {
  return JSON.parse(await runRanks(name, (output) => commandLine(output, JSON.stringify(plan))))
}

/**
 * Measures every system once in each round, so that a change in the load of the machine affects all of
 * them. One that fails, or that cannot be loaded here, is left out of the later rounds.
 *
 * @template {{ name: string }} S
 * @template T
 * @param {readonly S[]} systems
 * @param {number} runs
 * @param {(system: S) => Promise<T | { skipped: string }>} measure
 * @returns {Promise<{ rounds: Map<string, T[]>, failures: number }>} what each round measured, by the
 *   name of the system
 */
export async function takeTurns(systems, runs, measure) {
  /** @type {Map<string, T[]>} */
  const rounds = new Map()
  const left = new Set(systems)
  let failures = 0
  for (let round = 1; round <= runs; round++) {
    for (const system of left) {
      const { name } = system
      console.error(`round ${round} of ${runs}: ${name}`)
      try {
        const measured = await measure(system)
        if (isSkipped(measured)) {
          console.error(`skipped: no ${name} (${measured.skipped})`)
          left.delete(system)
        } else rounds.set(name, [...(rounds.get(name) ?? []), measured])
      } catch (error) {
        failures++
        left.delete(system)
        console.error(error instanceof Error ? error.message : error)
      }
    }
  }
  return { rounds, failures }
}

/**
 * @param {unknown} measured
 * @returns {measured is { skipped: string }}
 */
function isSkipped(measured) {
  return typeof measured === 'object' && measured !== null && 'skipped' in measured
}
