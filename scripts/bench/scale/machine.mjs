import { readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { fileURLToPath } from 'node:url'
import { instantiateKernels } from '../../../packages/distributed/dist/kernels.js'
import { UsageError } from '../command-line.mjs'
import { percentile, significant } from '../figures.mjs'
import { describeMachine, runRanks, tsrunLine } from '../programs.mjs'

const rank = fileURLToPath(new URL('./scale-rank.mjs', import.meta.url))

/**
 * @typedef {import('./simulation/cluster.ts').MachineCosts} MachineCosts
 * @typedef {{ smallUs: number, perByteUs: number, gapUs: number, barrierUs: number }} Times
 */

/** Of each array that the kernels work on: large collectives find their buffers outside of the caches. */
const ARRAY = 2 ** 23
const PAGE = 65536
/** Two ranks for each core are not started where there are more cores than this. */
const MOST_CORES = 8
/** What it costs there to wake a rank, seconds: an assumption. */
const WAKING = 5e-6

/**
 * Measures what the simulation needs to know of this machine, in a few seconds.
 *
 * @returns {Promise<MachineCosts>}
 */
export async function measureMachine() {
  const callUs = await measureCall()
  const shared = await measureRanks(2, 'shared-memory')
  const sockets = await measureRanks(2, 'tcp')
  const cores = availableParallelism()
  const crowded = cores > MOST_CORES ? undefined : await measureRanks(2 * cores, 'tcp')
  const waking = crowded === undefined ? WAKING : (crowded.smallUs - sockets.smallUs) / 1e6
  return costsOf({ shared, sockets, callUs, waking, ...measureKernels() })
}

/**
 * The costs of the model from the times of messages. A small one takes a call, two overheads and the
 * latency, and each further one in a burst a call and an overhead.
 *
 * @param {object} measured
 * @param {Times} measured.shared
 * @param {Times} measured.sockets
 * @param {number} measured.callUs
 * @param {number} measured.waking - seconds
 * @param {number} measured.combinePerByte
 * @param {number} measured.copyPerByte
 * @returns {MachineCosts}
 */
export function costsOf({ shared, sockets, callUs, waking, combinePerByte, copyPerByte }) {
  const messages = (/** @type {Times} */ { smallUs, gapUs, perByteUs }) => {
    const messageUs = Math.max(smallUs - callUs, 0)
    const overheadUs = Math.min(Math.max(gapUs - callUs, messageUs / 4), messageUs / 2)
    return {
      overhead: significant(overheadUs / 1e6),
      latency: significant((messageUs - 2 * overheadUs) / 1e6),
      perByte: significant(Math.max(perByteUs, 0) / 1e6),
    }
  }
  // Half of the time of a barrier is spent by the rank, and half between the ranks.
  const half = significant(Math.max(shared.barrierUs - callUs, 0) / 2 / 1e6)
  return {
    calling: significant(callUs / 1e6),
    sockets: messages(sockets),
    sharedMemory: messages(shared),
    slots: { overhead: half, latency: half },
    combinePerByte: significant(combinePerByte),
    copyPerByte: significant(copyPerByte),
    waking: significant(Math.max(waking, 0)),
  }
}

/** @returns {Promise<number>} microseconds */
async function measureCall() {
  console.error('calls: 1 rank')
  const text = await runRanks('inline', (output) => tsrunLine(1, rank, [output, 'tcp']))
  return JSON.parse(text).callUs
}

/**
 * @param {number} ranks
 * @param {string} transport
 * @returns {Promise<Times>}
 */
async function measureRanks(ranks, transport) {
  console.error(`messages: ${transport}, ${ranks} ranks`)
  const line = (/** @type {string} */ output) => tsrunLine(ranks, rank, [output, transport])
  return JSON.parse(await runRanks(`${transport} inline`, line))
}

function measureKernels() {
  const pages = (2 * ARRAY) / PAGE + 1
  const memory = new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true })
  const { combine, copy } = instantiateKernels(memory)
  const [a, b] = [PAGE, PAGE + ARRAY]
  const perByte = (/** @type {() => void} */ run) => {
    const seconds = Array.from({ length: 60 }, () => {
      const start = performance.now()
      run()
      return (performance.now() - start) / 1e3
    })
    return percentile(seconds, 0.1) / ARRAY
  }
  return {
    combinePerByte: perByte(() => combine('sum', 'float32', a, a, b, ARRAY / 4)),
    copyPerByte: perByte(() => copy(a, b, ARRAY)),
  }
}

/**
 * The costs in a file that `--measure` has written.
 *
 * @param {string} path
 * @returns {MachineCosts}
 */
export function readMachine(path) {
  try {
    const { costs } = JSON.parse(readFileSync(path, 'utf8'))
    const { sockets, sharedMemory, slots, ...core } = costs
    const numbers = [
      ...['overhead', 'latency', 'perByte'].flatMap((key) => [sockets[key], sharedMemory[key]]),
      ...[slots.overhead, slots.latency, core.calling, core.combinePerByte, core.copyPerByte],
      core.waking,
    ]
    if (numbers.every((value) => Number.isFinite(value) && value >= 0)) return costs
  } catch (error) {
    const { message } = /** @type {Error} */ (error)
    throw new UsageError(`--machine: ${path} cannot be read: ${message}`)
  }
  throw new UsageError(`--machine: ${path} was not written by --measure`)
}

/** @param {MachineCosts} costs */
export function describeCosts(costs) {
  const { cpu, cores, node } = describeMachine()
  return { about: { cpu, cores, node, date: new Date().toISOString() }, costs }
}
