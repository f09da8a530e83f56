import { writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { formatBytes } from '@tsrun/core'
import { algorithmsOf } from '@tsrun/distributed'
import { countFor } from '../collectives/plan.mjs'
import { readInteger, readList, splitList, UsageError } from '../command-line.mjs'
import { describeMachine, runRanks, tsrunLine } from '../programs.mjs'
import { markdownTable, median, parseSize, significant } from '../figures.mjs'
import { bestBySize, tuningTable } from './tuning-table.mjs'

const rank = fileURLToPath(new URL('./tune-rank.mjs', import.meta.url))

/** @typedef {(typeof tuned)[number]} Tuned */

/** The operations that have several algorithms. */
const tuned = /** @type {const} */ ([
  'allReduce',
  'reduceScatter',
  'allGather',
  'broadcast',
  'reduce',
  'gather',
  'scatter',
])
/** Algorithms for several hosts, and for groups that need no messages. */
const notTuned = new Set(['hierarchical', 'window'])
const transports = /** @type {const} */ (['shared-memory', 'tcp'])
const sizes = '1KiB,4KiB,16KiB,64KiB,256KiB,1MiB,4MiB,16MiB,64MiB'

// Two buffers of this size for each algorithm of an operation fit into an arena of the default size.
const LARGEST = 2 ** 26

/** @type {import('../command-line.mjs').Command} */
export const tune = {
  summary: 'the fastest algorithm by operation, transport and size; writes a file for TSRUN_TUNING',
  options: {
    ranks: { value: '<n>', default: '4', description: 'processes, all on this host' },
    ops: { value: '<list>', default: tuned.join(','), description: 'operations' },
    sizes: { value: '<list>', default: sizes, description: 'of the full buffer' },
    transport: { value: '<list>', default: transports.join(','), description: 'to measure' },
    engine: { value: '<name>', default: 'worker', description: 'worker or inline' },
    runs: { value: '<n>', default: '3', description: 'rounds' },
    output: { value: '<file>', description: 'where to write the tuning table for TSRUN_TUNING' },
    json: { description: 'one JSON object per line instead of the table' },
  },
  run: async (values) => {
    const { ops, sizes, ranks, runs, engine, ...options } = readOptions(values)
    /** @type {Map<string, import('./tuning-table.mjs').Timing & { all: number[] }>} */
    const timings = new Map()
    for (let round = 1; round <= runs; round++) {
      for (const transport of options.transports) {
        console.error(`round ${round} of ${runs}: ${transport} ${engine}, ${ranks} ranks`)
        const steps = ops.flatMap((op) => sizes.map((bytes) => stepOf(op, bytes, ranks)))
        const text = await runRanks(`${transport} ${engine}`, (output) =>
          tsrunLine(ranks, rank, [output, transport, engine, ...steps]),
        )
        for (const line of text.trim().split('\n')) {
          const { us, lowUs: _, ...what } = JSON.parse(line)
          const key = [what.op, transport, what.bytes, what.algorithm].join(' ')
          const all = [...(timings.get(key)?.all ?? []), us]
          timings.set(key, { ...what, transport, us: significant(median(all)), all })
        }
      }
    }
    const bests = bestBySize([...timings.values()].map(({ all: _, ...timing }) => timing))
    console.log(options.json ? bests.map((best) => JSON.stringify(best)).join('\n') : show(bests))
    if (options.output !== undefined) {
      const about = { ...describeMachine(), ranks, engine, runs, date: new Date().toISOString() }
      writeFileSync(options.output, `${JSON.stringify(tuningTable(bests, about), null, 2)}\n`)
      console.error(`written: ${options.output}; to use it, set TSRUN_TUNING=${options.output}`)
    }
    return 0
  },
}

/** @param {import('../command-line.mjs').Values} values */
function readOptions(values) {
  const ops = readList('ops', values['ops'], tuned)
  const sizes = splitList(values['sizes'])
    .map(parseSize)
    .toSorted((a, b) => a - b)
  const wanted = readList('transport', values['transport'], transports)
  const [engine, ...more] = readList('engine', values['engine'], ['worker', 'inline'])
  if ([ops, sizes, wanted].some((list) => list.length === 0)) {
    throw new UsageError('--ops, --sizes or --transport is empty')
  }
  if (engine === undefined || more.length > 0) throw new UsageError('--engine takes one name')
  if (sizes.some((bytes) => bytes > LARGEST)) throw new UsageError('--sizes: at most 64MiB')
  return {
    ops,
    sizes,
    transports: wanted,
    engine,
    ranks: readInteger('ranks', values['ranks'], 2, 64),
    runs: readInteger('runs', values['runs'], 1, 100),
    output: values['output'],
    json: values.json !== undefined,
  }
}

/**
 * @param {Tuned} op
 * @param {number} bytes
 * @param {number} ranks
 */
function stepOf(op, bytes, ranks) {
  const algorithms = algorithmsOf(op).filter((name) => !notTuned.has(name))
  const [warmUps, repeats] = repetitions(bytes)
  return [op, countFor(op, bytes, ranks), warmUps, repeats, algorithms.join(',')].join(':')
}

/** @param {number} bytes */
function repetitions(bytes) {
  if (bytes <= 2 ** 16) return [200, 100]
  if (bytes <= 2 ** 20) return [20, 40]
  return [2, 8]
}

/** @param {readonly import('./tuning-table.mjs').Best[]} bests */
function show(bests) {
  const ordered = bests.toSorted((a, b) => place(bests, a) - place(bests, b))
  return markdownTable(
    ['operation', 'transport', 'bytes', 'best', 'p50 us', 'others, as multiples of the best'],
    ordered.map(({ op, transport, bytes, algorithm, us, others }) => [
      ...[op, transport, formatBytes(bytes), algorithm, us],
      others.map((other) => `${other.algorithm} ${other.ratio}`).join(', '),
    ]),
  )
}

/**
 * @param {readonly import('./tuning-table.mjs').Best[]} bests
 * @param {import('./tuning-table.mjs').Best} best
 */
function place(bests, { op, transport }) {
  return bests.findIndex((other) => other.op === op && other.transport === transport)
}
