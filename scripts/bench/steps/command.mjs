import { readInteger, readList, UsageError } from '../command-line.mjs'
import { printRows } from '../figures.mjs'
import { formatRows, summarize } from './report.mjs'
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
      description: 'those that cannot be loaded are skipped',
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
    const systems = ours.map(backendSystem)
    if (peers.length > 0) {
      const torch = await torchSystems()
      if ('skipped' in torch) console.error(`skipped: ${torch.skipped}`)
      else systems.push(...torch)
    }
    const what = workloads.filter(({ name }) => chosen.includes(name))
    const { rounds, failures } = await measureInTurn(systems, what, runs)
    printRows(summarize(rounds, what), values.json !== undefined, formatRows)
    return failures === 0 ? 0 : 1
  },
}

/**
 * @param {readonly import('./systems.mjs').System[]} systems
 * @param {readonly import('./workloads.mjs').Workload[]} what
 * @param {number} runs
 */
async function measureInTurn(systems, what, runs) {
  /** @type {Map<string, import('./report.mjs').Round[]>} */
  const rounds = new Map()
  const left = new Set(systems.filter(({ takes }) => what.some(takes)))
  let failures = 0
  for (let round = 1; round <= runs; round++) {
    for (const system of left) {
      console.error(`round ${round} of ${runs}: ${system.name}`)
      try {
        const measured = await measure(system, what)
        if ('skipped' in measured) {
          console.error(`skipped: no ${system.name} (${measured.skipped})`)
          left.delete(system)
        } else rounds.set(system.name, [...(rounds.get(system.name) ?? []), measured])
      } catch (error) {
        failures++
        left.delete(system)
        console.error(error instanceof Error ? error.message : error)
      }
    }
  }
  return { rounds, failures }
}
