import { fileURLToPath } from 'node:url'
import { readInteger, readList } from '../command-line.mjs'
import { formatRecords, parseSize, printRows } from '../figures.mjs'
import { tsrunLine, withFolder } from '../programs.mjs'
import { backendSystem, ifAsked, measure, takeTurns, torchSystems } from '../turns.mjs'
import { bytesOfLayer, summarize, WIDTH } from './summary.mjs'

const backends = /** @type {const} */ (['wasm', 'cpu', 'tensorflow'])
const rank = new URL('checkpoint-rank.mjs', import.meta.url)
const peer = new URL('torch_checkpoint.py', import.meta.url)

/**
 * @typedef {object} Plan
 * @property {number} layers - each `width` wide
 * @property {number} width
 * @property {number} batch - rows
 * @property {number} saves
 * @property {number} quiet - steps before each save
 * @property {string} folder
 * @property {number} ranks - replicas, each with `batch` rows
 * @property {number} zero - the stage
 */

/** @type {import('../command-line.mjs').Command} */
export const checkpoint = {
  summary: 'what a checkpoint in the background costs the training, compared with PyTorch',
  options: {
    backends: { value: '<list>', default: 'wasm', description: 'where tensors are computed' },
    size: { value: '<size>', default: '100MB', description: 'of a checkpoint, about' },
    batch: { value: '<n>', default: '8', description: 'rows of a step' },
    saves: { value: '<n>', default: '5', description: 'in each round' },
    quiet: { value: '<n>', default: '20', description: 'steps before each save' },
    ranks: { value: '<n>', default: '1', description: 'replicas, each with the rows of a step' },
    zero: { value: '<stage>', default: '0', description: 'of ZeRO, with several ranks' },
    peers: { value: '<list>', description: 'torch: also measured if installed' },
    runs: { value: '<n>', default: '3', description: 'rounds; the systems take turns in each' },
    json: { description: 'one JSON object per line instead of the table' },
  },
  run: async (values) => {
    const { rows, failures } = await measureCheckpoint({
      ours: readList('backends', values['backends'], backends),
      peers: readList('peers', values['peers'], ['torch']),
      bytes: parseSize(values['size'] ?? ''),
      batch: readInteger('batch', values['batch'], 1, 4096),
      saves: readInteger('saves', values['saves'], 1, 1000),
      quiet: readInteger('quiet', values['quiet'], 1, 1000),
      ranks: readInteger('ranks', values['ranks'], 1, 64),
      zero: readInteger('zero', values['zero'], 0, 3),
      runs: readInteger('runs', values['runs'], 1, 100),
    })
    if (rows.length > 0) printRows(rows, values.json !== undefined, formatRecords)
    return failures === 0 ? 0 : 1
  },
}

/**
 * @param {{ ours: readonly string[], peers: readonly string[], bytes: number, runs: number } &
 *   Pick<Plan, 'batch' | 'saves' | 'quiet'> & Partial<Pick<Plan, 'ranks' | 'zero'>>} options
 */
export function measureCheckpoint({ ours, peers, bytes, runs, ranks = 1, zero = 0, ...others }) {
  return withFolder(async (folder) => {
    const layers = Math.max(1, Math.round(bytes / bytesOfLayer))
    /** @type {Plan} */
    const plan = { layers, width: WIDTH, folder, ranks, zero, ...others }
    const systems = [
      ...ours.map((name) => (ranks === 1 ? backendSystem(name, rank) : jobSystem(name, plan))),
      ...(await ifAsked(peers, () => torchSystems(peer))),
    ]
    const { rounds, failures } = await takeTurns(systems, runs, (system) => measure(system, plan))
    return { rows: summarize(rounds, layers * bytesOfLayer), failures }
  })
}

/**
 * The job of several ranks on a backend.
 *
 * @param {string} backend
 * @param {Plan} plan
 * @returns {import('../turns.mjs').System}
 */
function jobSystem(backend, { ranks, zero }) {
  return {
    name: `${backend}, ${ranks} ranks${zero > 0 ? `, ZeRO ${zero}` : ''}`,
    commandLine: (output, plan) => tsrunLine(ranks, fileURLToPath(rank), [output, backend, plan]),
  }
}
