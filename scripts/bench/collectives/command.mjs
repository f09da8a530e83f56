import { readInteger, readList, splitList, UsageError } from '../command-line.mjs'
import { parseSize, printRows } from '../figures.mjs'
import { withFolder } from '../programs.mjs'
import { operations, plan } from './plan.mjs'
import { formatRows } from './report.mjs'
import { measureAll } from './rounds.mjs'
import { findPeers, peerNames, transports, tsrunSystems } from './systems.mjs'

// Two buffers of this size fit into an arena of the default size.
const LARGEST = 2 ** 28

/** @type {import('../command-line.mjs').Command} */
export const collectives = {
  summary: 'times of collectives by size, compared with PyTorch (gloo) and Open MPI',
  options: {
    ranks: { value: '<n>', default: '4', description: 'processes, all on this host' },
    peers: { value: '<list>', description: 'torch, openmpi: also measured if installed' },
    ops: { value: '<list>', default: operations.join(','), description: 'operations' },
    sizes: { value: '<list>', default: '4KiB,1MiB,64MiB', description: 'of the full buffer' },
    transport: {
      value: '<list>',
      default: 'shared-memory',
      description: `ours: ${transports.join(', ')}`,
    },
    engine: { value: '<list>', default: 'worker', description: 'ours: worker, inline' },
    runs: { value: '<n>', default: '3', description: 'rounds; the systems take turns in each' },
    json: { description: 'one JSON object per line instead of the table' },
  },
  run: async (values) => {
    const options = readOptions(values)
    return withFolder((folder) => run(options, folder))
  },
}

/** @param {import('../command-line.mjs').Values} values */
function readOptions(values) {
  const ops = readList('ops', values['ops'], operations)
  const sizes = splitList(values['sizes']).map(parseSize)
  if (ops.length === 0 || sizes.length === 0) throw new UsageError('--ops or --sizes is empty')
  if (sizes.some((bytes) => bytes > LARGEST)) throw new UsageError('--sizes: at most 256MiB')
  const engines = readList('engine', values['engine'], /** @type {const} */ (['worker', 'inline']))
  const ours = tsrunSystems(readList('transport', values['transport'], transports), engines)
  if (ours.length === 0) throw new UsageError('the node transport runs with the worker engine only')
  return {
    ops,
    sizes,
    ours,
    peers: readList('peers', values['peers'], peerNames),
    ranks: readInteger('ranks', values['ranks'], 2, 64),
    runs: readInteger('runs', values['runs'], 1, 100),
    json: values.json !== undefined,
  }
}

/**
 * @param {ReturnType<typeof readOptions>} options
 * @param {string} folder - for what peers compile
 */
async function run({ ops, sizes, ours, peers, ranks, runs, json }, folder) {
  const { systems } = await findPeers(peers, folder)
  const { rows, failures } = await measureAll({
    systems: [...ours, ...systems],
    steps: plan(ops, sizes, ranks),
    ranks,
    runs,
  })
  printRows(rows, json, formatRows)
  return failures === 0 ? 0 : 1
}
