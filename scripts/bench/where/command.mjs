import { fileURLToPath } from 'node:url'
import { readInteger, readList, splitList, UsageError } from '../command-line.mjs'
import { formatRecords, parseSize, printRows } from '../figures.mjs'
import { oneThread, runRanks, tsrunLine } from '../programs.mjs'
import { engines, networks } from '../training/plan.mjs'
import { layouts } from './layouts.mjs'
import {
  formatExposed,
  formatSteps,
  summarizeCold,
  summarizeExchange,
  summarizeExposed,
  summarizeSteps,
} from './summaries.mjs'

const stepRank = fileURLToPath(new URL('step-rank.mjs', import.meta.url))
const firstCallsRank = fileURLToPath(new URL('first-calls-rank.mjs', import.meta.url))
const allReduceRank = fileURLToPath(new URL('all-reduce-rank.mjs', import.meta.url))

const parts = /** @type {const} */ (['steps', 'all-reduce', 'first-calls'])
const backends = /** @type {const} */ (['tensorflow', 'wasm'])
const MICROBATCHES = 8
/** Bytes: the time of the first calls of larger ones is that of their bytes. */
const LARGEST_FIRST = 2 ** 20
const names = layouts.map(({ name }) => name)
const workloadNames = networks.map(({ name }) => name)

/** @type {import('../command-line.mjs').Command} */
export const where = {
  summary: 'where the time of a training step goes in each layout, and that of one all-reduce',
  options: {
    parts: { value: '<list>', default: parts.join(','), description: 'what is taken apart' },
    backend: {
      value: '<name>',
      description: 'of the steps; default: tensorflow if it can be loaded, else wasm',
    },
    layouts: { value: '<list>', default: names.join(','), description: 'of the steps' },
    workloads: {
      value: '<list>',
      default: workloadNames.join(','),
      description: 'what is trained',
    },
    engine: { value: '<name>', default: 'auto', description: 'of the steps: auto, worker, inline' },
    engines: { value: '<list>', default: 'inline,worker', description: 'of the all-reduces' },
    ranks: { value: '<list>', default: '2,4', description: 'of the all-reduces' },
    sizes: {
      value: '<list>',
      default: '4KiB,64KiB,1MiB,64MiB',
      description: 'of the all-reduces, float32',
    },
    repeats: { value: '<n>', description: 'steps or operations; default: by workload, and 200' },
    json: { description: 'one JSON object per line instead of the tables' },
  },
  run: async (values) => {
    const chosen = readList('parts', values['parts'], parts)
    if (chosen.length === 0) throw new UsageError('--parts is empty')
    const ours = readList('layouts', values['layouts'], names)
    const trained = readList('workloads', values['workloads'], workloadNames)
    const backend = values['backend'] && one(readList('backend', values['backend'], backends))
    const engine = one(readList('engine', values['engine'], engines))
    const exchanged = {
      engines: readList('engines', values['engines'], ['inline', 'worker']),
      ranks: splitList(values['ranks']).map((text) => readInteger('ranks', text, 2, 64)),
      sizes: splitList(values['sizes']).map(parseSize),
    }
    if (exchanged.sizes.some((bytes) => bytes % 4 !== 0 || bytes > 2 ** 29)) {
      throw new UsageError('--sizes: float32, up to 512MiB')
    }
    const repeats =
      values['repeats'] === undefined
        ? undefined
        : readInteger('repeats', values['repeats'], 1, 10_000)
    const isJson = values.json !== undefined
    if (chosen.includes('steps')) {
      const plan = {
        workloads: networks.filter(({ name }) => trained.includes(name)),
        ...{ engine, repeats, microbatches: MICROBATCHES },
      }
      const { rows, exposed } = await measureSteps(
        layouts.filter(({ name }) => ours.includes(name)),
        backend === undefined ? backends : [/** @type {(typeof backends)[number]} */ (backend)],
        plan,
      )
      if (rows.length > 0) printRows(rows, isJson, formatSteps)
      if (exposed.length > 0) {
        separate(isJson)
        printRows(exposed, isJson, formatExposed)
      }
    }
    if (chosen.includes('all-reduce')) {
      if (chosen.includes('steps')) separate(isJson)
      const rows = await measureAllReduce({ ...exchanged, repeats: repeats ?? 200 })
      printRows(rows, isJson, formatRecords)
    }
    if (chosen.includes('first-calls')) {
      if (chosen.length > 1) separate(isJson)
      const sizes = exchanged.sizes.filter((bytes) => bytes <= LARGEST_FIRST)
      printRows(await measureFirstCalls({ ...exchanged, sizes }), isJson, formatRecords)
    }
    return 0
  },
}

/** @param {boolean} isJson */
function separate(isJson) {
  if (!isJson) console.log()
}

/**
 * @template T
 * @param {readonly T[]} list
 * @returns {T}
 */
function one([first, ...more]) {
  if (first === undefined || more.length > 0) {
    throw new UsageError('--backend and --engine take one name')
  }
  return first
}

/**
 * @param {readonly import('./layouts.mjs').Layout[]} chosen
 * @param {readonly (typeof backends)[number][]} candidates - the first one that can be loaded is measured
 * @param {Omit<import('./layouts.mjs').Plan, 'layout'>} plan
 */
async function measureSteps(chosen, candidates, plan) {
  const left = [...candidates]
  const rows = []
  const exposed = []
  for (const layout of chosen) {
    for (;;) {
      const [backend] = left
      if (backend === undefined) return { rows: [], exposed: [] }
      console.error(`${layout.name} on ${backend}`)
      const text = await runRanks(`${layout.name} on ${backend}`, (output) => ({
        ...tsrunLine(layout.ranks, stepRank, [
          output,
          backend,
          JSON.stringify({ ...plan, layout }),
        ]),
        env: oneThread,
      }))
      /** @type {{ samples: { workload: string, steps: import('./summaries.mjs').Step[], warm?: import('./summaries.mjs').Warm }[] } | { skipped: string }} */
      const measured = JSON.parse(text)
      if ('skipped' in measured) {
        console.error(`skipped: no ${backend} (${measured.skipped})`)
        left.shift()
        continue
      }
      for (const { workload, steps, warm } of measured.samples) {
        const what = { workload, layout: layout.name, ranks: layout.ranks, backend }
        const row = summarizeSteps(what, steps)
        rows.push(row)
        if (warm !== undefined) exposed.push(summarizeExposed(row, warm))
      }
      break
    }
  }
  const byWorkload = (
    /** @type {{ workload: string }} */ a,
    /** @type {{ workload: string }} */ b,
  ) => workloadNames.indexOf(a.workload) - workloadNames.indexOf(b.workload)
  return { rows: rows.toSorted(byWorkload), exposed: exposed.toSorted(byWorkload) }
}

/** @param {{ engines: readonly string[], ranks: readonly number[], sizes: readonly number[], repeats: number }} what */
async function measureAllReduce({ engines, ranks, sizes, repeats }) {
  const rows = []
  for (const size of ranks) {
    for (const engine of engines) {
      console.error(`all-reduce of ${size} ranks, engine ${engine}`)
      const text = await runRanks(`${size} ranks, engine ${engine}`, (output) =>
        tsrunLine(size, allReduceRank, [output, engine, sizes.join(','), String(repeats)]),
      )
      /** @type {import('./summaries.mjs').Exchange[]} */
      const exchanges = JSON.parse(text)
      rows.push(...exchanges.map((each) => summarizeExchange({ ranks: size, engine }, each)))
    }
  }
  return rows
}

/**
 * Each size in a job of its own, so that its first calls are the first that the ranks make.
 *
 * @param {{ engines: readonly string[], ranks: readonly number[], sizes: readonly number[] }} what
 */
async function measureFirstCalls({ engines, ranks, sizes }) {
  const rows = []
  for (const size of ranks) {
    for (const engine of engines) {
      console.error(`first calls of ${size} ranks, engine ${engine}`)
      for (const bytes of sizes) {
        const text = await runRanks(`${size} ranks, engine ${engine}`, (output) =>
          tsrunLine(size, firstCallsRank, [output, engine, String(bytes)]),
        )
        /** @type {{ first: number[], warm: number[] }} */
        const times = JSON.parse(text)
        rows.push(summarizeCold({ ranks: size, engine }, { bytes, ...times }))
      }
    }
  }
  return rows
}
