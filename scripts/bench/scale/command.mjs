import { readInteger, readList, splitList, UsageError } from '../command-line.mjs'
import { parseSize, printRows } from '../figures.mjs'
import { links, parseLink } from './links.mjs'
import { describeCosts, measureMachine, readMachine } from './machine.mjs'

const operations = /** @type {const} */ ([
  'allReduce',
  'reduceScatter',
  'allGather',
  'broadcast',
  'allToAll',
  'reduce',
  'gather',
  'scatter',
])
const LARGEST = 2 ** 30
/** What two buffers for each algorithm leave of an arena of the default size. */
const LARGEST_CHECK = 2 ** 26
const MOST_RANKS = 4096
const MOST_RANKS_HERE = 16

/** @type {import('../command-line.mjs').Command} */
export const scale = {
  summary: 'what each algorithm would cost on many hosts, simulated from the costs of this machine',
  options: {
    op: {
      value: '<list>',
      default: operations.slice(0, 5).join(','),
      description: 'operations',
    },
    size: { value: '<list>', default: '4KiB,1MiB,64MiB', description: 'of the full buffer' },
    ranks: { value: '<list>', default: '8,64,512,4096', description: 'processes altogether' },
    'per-host': { value: '<n>', default: '8', description: 'processes on each host' },
    cores: { value: '<n>', description: 'of each host (default: one for each process)' },
    link: {
      value: '<link>',
      default: '10GbE',
      description: `of each host: ${Object.keys(links).join(', ')} or 25us,1.2GB/s`,
    },
    machine: { value: '<file>', description: 'costs that --measure --json has written' },
    measure: { description: 'measure the costs of this machine, and simulate nothing' },
    check: { value: '<list>', description: 'run so many ranks here, and compare' },
    json: { description: 'one JSON object per line instead of the table' },
  },
  run: async (values) => {
    const { clusters, ops, sizes, check } = readOptions(values)
    const json = values.json !== undefined
    const costs =
      values['machine'] === undefined ? await measureMachine() : readMachine(values['machine'])
    if (values['measure'] !== undefined) {
      console.log(JSON.stringify(describeCosts(costs), null, json ? 0 : 2))
      return 0
    }
    // TypeScript: see main.mjs
    const { formatPredictions, predict } = await import('./predict.mjs')
    const { checkHere, formatChecks } = await import('./check.mjs')
    if (check.length > 0) {
      printRows(await checkHere(costs, { ops, sizes, ranks: check }), json, formatChecks)
    } else {
      const rows = clusters.flatMap((cluster) => {
        console.error(`simulating ${cluster.ranks} ranks`)
        return ops.flatMap((op) => sizes.map((bytes) => predict({ ...cluster, costs }, op, bytes)))
      })
      rows.sort((a, b) => ops.findIndex((op) => op === a.op) - ops.findIndex((op) => op === b.op))
      printRows(rows, json, formatPredictions)
    }
    return 0
  },
}

/** @param {import('../command-line.mjs').Values} values */
function readOptions(values) {
  const ops = readList('op', values['op'], operations)
  const sizes = splitList(values['size']).map(parseSize)
  const ranks = splitList(values['ranks'])
  if ([ops, sizes, ranks].some((list) => list.length === 0)) {
    throw new UsageError('--op, --size or --ranks is empty')
  }
  const check = splitList(values['check']).map((text) =>
    readInteger('check', text, 2, MOST_RANKS_HERE),
  )
  const largest = check.length > 0 ? LARGEST_CHECK : LARGEST
  if (sizes.some((bytes) => bytes > largest)) {
    throw new UsageError(`--size: at most ${largest / 2 ** 20}MiB`)
  }
  const perHost = readInteger('per-host', values['per-host'], 1, 256)
  const link = parseLink(values['link'] ?? '')
  const cores = values['cores']
  const clusters = ranks.map((text) => {
    const count = readInteger('ranks', text, 2, MOST_RANKS)
    const ranksPerHost = Math.min(perHost, count)
    if (count % ranksPerHost !== 0) {
      throw new UsageError(`--ranks: ${count} is no multiple of the ${perHost} of --per-host`)
    }
    return {
      ...{ ranks: count, ranksPerHost, link },
      within: /** @type {const} */ ('sharedMemory'),
      cores: cores === undefined ? ranksPerHost : readInteger('cores', cores, 1, 1024),
    }
  })
  return { ops, sizes, check, clusters }
}
