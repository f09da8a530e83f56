// Compares training in every layout with training in a single process: `npm run parity -- --help`.
import { fileURLToPath } from 'node:url'
import { loadBackend } from '@tsrun/training'
import {
  describeOptions,
  parseOptions,
  readInteger,
  readList,
  splitList,
  UsageError,
} from '../bench/command-line.mjs'
import { markdownTable, printRows } from '../bench/figures.mjs'
import { runRanks, tsrunLine } from '../bench/programs.mjs'
import { isClose } from './compare.mjs'
import { configurations, ranksOf } from './configurations.mjs'

const script = fileURLToPath(new URL('ranks.mjs', import.meta.url))
const models = /** @type {const} */ (['mlp', 'gpt'])
const backends = /** @type {const} */ (['wasm', 'cpu', 'tensorflow'])
const maths = /** @type {const} */ (['exact', 'fast'])

const options = {
  only: { description: 'names of layouts, or parts of names; default: all', value: 'A,B' },
  models: { description: 'mlp, gpt', value: 'A,B', default: models.join(',') },
  backends: { description: 'wasm, cpu, tensorflow', value: 'A,B', default: 'wasm' },
  math: {
    description: 'exact, fast: the math of wasm; fast is left out where there is no BLAS',
    value: 'A,B',
    default: maths.join(','),
  },
  steps: { description: 'steps of SGD with momentum', value: 'N', default: '20' },
  through: {
    description:
      'verbs: put together by hand from dataParallel, pipeline, ...; trainer: by trainer()',
    value: 'NAME',
    default: 'verbs',
  },
  json: { description: 'one JSON object per line' },
}

/**
 * @typedef {object} Row
 * @property {string} configuration
 * @property {string} model
 * @property {string} backend
 * @property {import('./configurations.mjs').MathMode} math
 * @property {string | null} blas - the BLAS that computes products, and its kernels
 * @property {number} ranks
 * @property {number | null} loss - the largest difference / (1e-6 + 1e-5 |wanted|), like the next three; null
 *   if it is not finite
 * @property {number | null} gradients
 * @property {number | null} norm
 * @property {number | null} parameters
 * @property {number} collectives - of one step on one rank
 * @property {number} bytes - the larger of input and output of each of them, in sum
 * @property {number} messages - of one step on one rank
 * @property {number} sent - bytes of the messages
 * @property {readonly string[]} miscounts - where these numbers differ from what follows from the layout
 * @property {boolean} covered - whether the ranks together have every value
 * @property {boolean | null} bits - whether the parameters are bitwise identical to those of the
 *   layout that the configuration names; null if it names none, if that was not run, or with `fast`
 * @property {'equal' | 'DIFFERS'} verdict
 */

/**
 * @param {readonly string[]} args
 * @returns {Promise<number>} the exit code
 */
async function main(args) {
  if (args.includes('--help') || args.includes('-h')) {
    console.log(
      'npm run parity -- [options]: compares training in every layout with a single process\n',
    )
    console.log(describeOptions(options))
    return 0
  }
  const values = parseOptions(options, args)
  const steps = readInteger('steps', values['steps'], 1, 1000)
  const chosen = readList('models', values['models'], models)
  const runs = chosen.flatMap((model) =>
    select(values['only'])
      .filter((configuration) => configuration.models?.includes(model) ?? true)
      .map((configuration) => ({ configuration, model })),
  )
  const [through = 'verbs'] = readList('through', values['through'], ['verbs', 'trainer'])
  /** @type {Row[]} */
  const rows = []
  for (const backend of readList('backends', values['backends'], backends)) {
    const modes = backend === 'wasm' ? await available(values['math']) : [null]
    for (const math of modes) rows.push(...(await train(backend, math, runs, steps, through)))
  }
  printRows(rows, values.json !== undefined, format)
  return rows.length > 0 && rows.every(({ verdict }) => verdict === 'equal') ? 0 : 1
}

/**
 * The chosen ones of `maths`, without `fast` where no BLAS passes the self-test of the backend.
 *
 * @param {string | undefined} text
 */
async function available(text) {
  const chosen = readList('math', text, maths)
  if (!chosen.includes('fast')) return chosen
  const { blas } = await loadBackend('wasm', { math: 'fast' })
  if (blas !== undefined) return chosen
  console.error('parity: fast was not run, because no BLAS passed the self-test of wasm')
  return chosen.filter((math) => math !== 'fast')
}

/** @param {string | undefined} only */
function select(only) {
  const wanted = splitList(only)
  const found = configurations.filter(
    ({ name }) => wanted.length === 0 || wanted.some((part) => name.includes(part)),
  )
  if (found.length > 0) return found
  const names = configurations.map(({ name }) => name).join(', ')
  throw new UsageError(`--only: no layout is called "${only}"; there are ${names}`)
}

/**
 * @param {string} backend
 * @param {import('./configurations.mjs').MathMode} math
 * @param {readonly { configuration: import('./configurations.mjs').Configuration, model: string }[]} runs
 * @param {number} steps
 * @param {string} through
 * @returns {Promise<Row[]>}
 */
async function train(backend, math, runs, steps, through) {
  const ranks = Math.max(...runs.map(({ configuration }) => ranksOf(configuration)))
  const text = await runRanks(`training on ${backend}`, (output) => ({
    ...tsrunLine(ranks, script, [output, JSON.stringify({ runs, steps, through, math })]),
    env: { TSRUN_BACKEND: backend, TSRUN_MATH: math ?? undefined },
  }))
  const lines = text.trimEnd().split('\n')
  return runs.map(({ configuration, model }, i) => {
    /** @type {Omit<Row, 'configuration' | 'model' | 'backend' | 'math' | 'ranks' | 'verdict'>} */
    const found = JSON.parse(lines[i] ?? '{"miscounts":[]}')
    const isWhole = found.covered && found.miscounts.length === 0
    const isRight = (found.blas !== null) === (math === 'fast') && found.bits !== false
    const isEqual = isClose(found) && isWhole && isRight
    return {
      configuration: configuration.name,
      model,
      backend,
      math,
      ranks: ranksOf(configuration),
      ...found,
      verdict: isEqual ? 'equal' : 'DIFFERS',
    }
  })
}

/** @param {string} configuration */
function bitwiseOf(configuration) {
  return configurations.find(({ name }) => name === configuration)?.bitwise ?? ''
}

/** @param {readonly Row[]} rows */
function format(rows) {
  const round = (/** @type {number | null} */ error) =>
    error === null ? 'not finite' : Number(error.toFixed(3))
  const table = markdownTable(
    [
      'configuration',
      'model',
      'backend',
      'math',
      'ranks',
      'loss',
      'gradients',
      'norm',
      'parameters',
      'collectives',
      'bytes',
      'messages',
      'bitwise like',
      'verdict',
    ],
    rows.map((row) => [
      row.configuration,
      row.model,
      row.backend,
      row.math ?? '',
      row.ranks,
      round(row.loss),
      round(row.gradients),
      round(row.norm),
      round(row.parameters),
      row.collectives,
      row.bytes,
      row.messages,
      row.bits === null ? '' : row.bits ? bitwiseOf(row.configuration) : 'NO',
      row.verdict,
    ]),
  )
  const miscounts = rows.flatMap(({ configuration, model, miscounts, covered }) => [
    ...miscounts.map((each) => `${model} ${configuration}, ${each}\n`),
    ...(covered ? [] : [`${model} ${configuration}: the ranks together do not have every value\n`]),
  ])
  const kernels = maths.flatMap((math) => {
    const row = rows.find((each) => each.math === math)
    const computes = `${row?.blas ?? 'WebAssembly'} computes the products of wasm.\n`
    return row === undefined ? [] : [`With the math ${math}, ${computes}`]
  })
  const equal = rows.filter(({ verdict }) => verdict === 'equal').length
  return `${table}

The figures from loss to parameters are the largest differences from a single process, as multiples of
the tolerance 1e-6 + 1e-5 |value|; up to 1 is equal. Collectives, their bytes and messages are those of
one step on one rank, and are compared with formulas where there are any (traffic.mjs).
${miscounts.join('')}${kernels.join('')}${equal} of ${rows.length} are equal.`
}

try {
  process.exitCode = await main(process.argv.slice(2))
} catch (error) {
  const { code, message } = /** @type {NodeJS.ErrnoException} */ (error)
  const known = ['ERR_BENCH_USAGE', 'ERR_BENCH_RUN', 'ERR_TSR_BACKEND']
  if (!known.includes(code ?? '')) throw error
  console.error(`parity: ${message}`)
  process.exitCode = code === 'ERR_BENCH_USAGE' ? 2 : 1
}
