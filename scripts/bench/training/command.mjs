import { readInteger, readList, UsageError } from '../command-line.mjs'
import { overLink, readRate, whyNoLink } from './link.mjs'
import { printRows } from '../figures.mjs'
import { engines, modesOf, networks } from './plan.mjs'
import { formatRows, summarize } from './report.mjs'
import { backends, backendSystem, measure, torchSystem } from './systems.mjs'

const names = networks.map(({ name }) => name)
const MICROBATCHES = 8

/** @type {import('../command-line.mjs').Command} */
export const training = {
  summary: 'training steps of replicas and pipelines, compared with PyTorch; overlap and scaling',
  options: {
    backends: {
      value: '<list>',
      default: backends.join(','),
      description: 'those that cannot be loaded are skipped',
    },
    workloads: { value: '<list>', default: names.join(','), description: 'what is trained' },
    batch: {
      value: '<n>',
      description: 'examples of all ranks together; default: that of the workload',
    },
    ranks: { value: '<list>', default: '1,2,4', description: 'processes, one thread each' },
    engine: { value: '<name>', default: 'auto', description: 'of our ranks: auto, worker, inline' },
    link: { value: '<rate>', description: 'TCP over a link of that rate, such as 4gbit (Linux)' },
    bucket: { value: '<MiB>', default: '25', description: 'size of the buckets of gradients' },
    peers: { value: '<list>', description: 'torch: also measured if installed' },
    repeats: { value: '<n>', description: 'steps in a round; default: that of the workload' },
    runs: { value: '<n>', default: '3', description: 'rounds; the systems take turns in each' },
    json: { description: 'one JSON object per line instead of the table' },
  },
  run: async (values) => {
    const chosen = readList('workloads', values['workloads'], names)
    const ours = readList('backends', values['backends'], backends)
    const peers = readList('peers', values['peers'], ['torch'])
    const sizes = readList('ranks', values['ranks'], ['1', '2', '4']).map(Number)
    const runs = readInteger('runs', values['runs'], 1, 100)
    const repeats =
      values['repeats'] === undefined
        ? undefined
        : readInteger('repeats', values['repeats'], 1, 10_000)
    if (chosen.length === 0) throw new UsageError('--workloads is empty')
    if (sizes.length === 0) throw new UsageError('--ranks is empty')
    const batch =
      values['batch'] === undefined ? undefined : readInteger('batch', values['batch'], 8, 65_536)
    const bucketMiB = readInteger('bucket', values['bucket'], 1, 1024)
    const [engine, ...more] = readList('engine', values['engine'], engines)
    if (engine === undefined || more.length > 0) throw new UsageError('--engine takes one name')
    const link = readRate('link', values['link'])
    const reason = link === undefined ? undefined : whyNoLink(link)
    if (reason !== undefined) {
      console.error(`skipped: no link (${reason})`)
      return 0
    }
    const systems = ours.map(backendSystem)
    if (peers.length > 0) {
      const torch = await torchSystem()
      if ('skipped' in torch) console.error(`skipped: ${torch.skipped}`)
      else systems.push(torch)
    }
    const workloads = networks
      .filter(({ name }) => chosen.includes(name))
      .map((workload) => withOptions(workload, { batch, repeats }))
    const linked = link === undefined ? systems : systems.map((system) => onLink(system, link))
    const { rounds, failures } = await measureInTurn(
      linked,
      sizes,
      { workloads, bucketMiB, engine },
      runs,
    )
    const rows = summarize(rounds).map((row) => ({ ...row, bucketMiB, engine, link: link ?? null }))
    printRows(rows, values.json !== undefined, formatRows)
    return failures === 0 ? 0 : 1
  },
}

/**
 * @param {import('./systems.mjs').System} system
 * @param {string} rate
 * @returns {import('./systems.mjs').System}
 */
function onLink(system, rate) {
  return { ...system, commandLine: (...all) => overLink(rate, system.commandLine(...all)) }
}

/**
 * @param {import('../steps/workloads.mjs').Workload} workload
 * @param {{ batch: number | undefined, repeats: number | undefined }} options
 */
function withOptions(workload, { batch = workload.batch, repeats = workload.repeats }) {
  return { ...workload, batch, repeats, warmUps: Math.min(workload.warmUps, repeats) }
}

/**
 * @param {readonly import('./systems.mjs').System[]} systems
 * @param {readonly number[]} sizes
 * @param {Pick<import('./plan.mjs').Plan, 'workloads' | 'bucketMiB' | 'engine'>} what
 * @param {number} runs
 */
async function measureInTurn(systems, sizes, what, runs) {
  /** @type {import('./report.mjs').Round[]} */
  const rounds = []
  const left = new Set(systems)
  let failures = 0
  for (let round = 1; round <= runs; round++) {
    for (const ranks of sizes) {
      for (const system of left) {
        console.error(`round ${round} of ${runs}: ${system.name} with ${ranks} ranks`)
        const modes = modesOf(ranks, system.isPeer)
        try {
          const plan = { ...what, modes, microbatches: MICROBATCHES }
          const measured = await measure(system, ranks, plan)
          if ('skipped' in measured) {
            console.error(`skipped: no ${system.name} (${measured.skipped})`)
            left.delete(system)
          } else rounds.push({ ...measured, system: system.name, ranks })
        } catch (error) {
          failures++
          left.delete(system)
          console.error(error instanceof Error ? error.message : error)
        }
      }
    }
  }
  return { rounds, failures }
}
