import { readInteger, readList, UsageError } from '../command-line.mjs'
import { printRows } from '../figures.mjs'
import { formatRows, summarize } from './report.mjs'
import { ifAsked, takeTurns } from '../turns.mjs'
import { backends, backendSystem, measure, torchSystems } from './systems.mjs'
import { workloads } from './workloads.mjs'

const names = workloads.map(({ name }) => name)

/** @type {import('../command-line.mjs').Command} */
export const steps = {
  summary: 'training steps of one process on each backend, compared with PyTorch',
  options: {
    backends: {
      value: '<list>',
      default: backends.join(','),
      description: 'those that cannot be loaded are skipped; wasm-alone: without a BLAS',
    },
    workloads: { value: '<list>', default: names.join(','), description: 'what is computed' },
    peers: { value: '<list>', description: 'torch: also measured if installed' },
    runs: { value: '<n>', default: '3', description: 'rounds; the systems take turns in each' },
    json: { description: 'one JSON object per line instead of the table' },
  },
  run: async (values) => {
    const chosen = readList('workloads', values['workloads'], names)
    const ours = readList('backends', values['backends'], backends)
    const peers = readList('peers', values['peers'], ['torch'])
    const runs = readInteger('runs', values['runs'], 1, 100)
    if (chosen.length === 0) throw new UsageError('--workloads is empty')
    const what = workloads.filter(({ name }) => chosen.includes(name))
    const { rows, failures } = await measureSteps({ ours, peers, what, runs })
    printRows(rows, values.json !== undefined, formatRows)
    return failures === 0 ? 0 : 1
  },
}

/**
 * @param {object} options
 * @param {readonly (typeof backends)[number][]} options.ours
 * @param {readonly string[]} options.peers
 * @param {readonly import('./workloads.mjs').Workload[]} options.what
 * @param {number} options.runs
 */
export async function measureSteps({ ours, peers, what, runs }) {
  const systems = [...ours.map(backendSystem), ...(await ifAsked(peers, torchSystems))]
  const { rounds, failures } = await takeTurns(
    systems.filter(({ takes }) => what.some(takes)),
    runs,
    (system) => measure(system, what),
  )
  return { rows: summarize(rounds, what), failures }
}
