import { readInteger, readList } from '../command-line.mjs'
import { formatRecords, parseSize, printRows } from '../figures.mjs'
import { withFolder } from '../programs.mjs'
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
      runs: readInteger('runs', values['runs'], 1, 100),
    })
    if (rows.length > 0) printRows(rows, values.json !== undefined, formatRecords)
    return failures === 0 ? 0 : 1
  },
}

/**
 * @param {{ ours: readonly string[], peers: readonly string[], bytes: number, runs: number } &
 *   Pick<Plan, 'batch' | 'saves' | 'quiet'>} options
 */
export function measureCheckpoint({ ours, peers, bytes, runs, ...others }) {
  return withFolder(async (folder) => {
    const layers = Math.max(1, Math.round(bytes / bytesOfLayer))
    /** @type {Plan} */
    const plan = { layers, width: WIDTH, folder, ...others }
    const systems = [
      ...ours.map((name) => backendSystem(name, rank)),
      ...(await ifAsked(peers, () => torchSystems(peer))),
    ]
    const { rounds, failures } = await takeTurns(systems, runs, (system) => measure(system, plan))
    return { rows: summarize(rounds, layers * bytesOfLayer), failures }
  })
}
