import { readInteger, readList, UsageError } from '../command-line.mjs'
import { overLink, readRate, whyNoLink } from './link.mjs'
import { printRows } from '../figures.mjs'
import { engines, modesOf, replicated } from './plan.mjs'
import { formatRows, summarize } from './report.mjs'
import { ifAsked } from '../turns.mjs'
import { backends, backendSystem, measure, torchSystems } from './systems.mjs'

const names = replicated.map(({ name }) => name)
/** Its gradients of 495 MB take long on most hosts, so it is measured only when it is named. */
const LARGE = 'gpt2-small'
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
    workloads: {
      value: '<list>',
      default: names.filter((name) => name !== LARGE).join(','),
      description: `what is trained; also ${LARGE}`,
    },
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
    const workloads = replicated
      .filter(({ name }) => chosen.includes(name))
      .map((workload) => withOptions(workload, { batch, repeats, ranks: Math.max(...sizes) }))
    const what = { workloads, bucketMiB, engine }
    const { rows, failures } = await measureTraining({ ours, peers, sizes, what, runs, link })
    printRows(rows, values.json !== undefined, formatRows)
    return failures === 0 ? 0 : 1
  },
}

/**
 * @param {object} options
 * @param {readonly (typeof backends)[number][]} options.ours
 * @param {readonly string[]} options.peers
 * @param {readonly number[]} options.sizes - numbers of ranks
 * @param {Pick<import('./plan.mjs').Plan, 'workloads' | 'bucketMiB' | 'engine'>} options.what
 * @param {number} options.runs
 * @param {string | undefined} [options.link] - its rate
 */
export async function measureTraining({ ours, peers, sizes, what, runs, link }) {
  const systems = [...ours.map(backendSystem), ...(await ifAsked(peers, torchSystems))]
  const linked = link === undefined ? systems : systems.map((system) => onLink(system, link))
  const { rounds, failures } = await measureInTurn(linked, sizes, what, runs)
  const { bucketMiB, engine } = what
  const rows = summarize(rounds).map((row) => ({ ...row, bucketMiB, engine, link: link ?? null }))
  return { rows, failures }
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
 * @param {{ batch: number | undefined, repeats: number | undefined, ranks: number }} options - ranks: the
 *   most among which a batch is divided
 */
function withOptions(workload, { batch, repeats = workload.repeats, ranks }) {
  return {
    ...workload,
    batch: batch ?? Math.max(workload.batch, ranks),
    repeats,
    warmUps: Math.min(workload.warmUps, repeats),
  }
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
        const modes = rotated(modesOf(ranks, system.isPeer), round - 1)
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

/**
 * Begins with another mode in each round. The first mode of a job is slower, probably because the code is
 * not compiled yet.
 *
 * @template T
 * @param {readonly T[]} modes
 * @param {number} by
 */
function rotated(modes, by) {
  const from = by % modes.length
  return [...modes.slice(from), ...modes.slice(0, from)]
}
