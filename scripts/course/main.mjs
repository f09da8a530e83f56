// Runs the lessons of examples/README.md in their order, and shows theory beside measurement:
//   npm run course -- --help
import { readFileSync, writeFileSync } from 'node:fs'
import { availableParallelism, cpus } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import {
  describeOptions,
  parseOptions,
  readInteger,
  readList,
  splitList,
  UsageError,
} from '../bench/command-line.mjs'
import { runToEnd, tsrunLine } from '../bench/programs.mjs'
import { lessons } from './lessons.mjs'
import { exitCodeOf, judge, readResult, recordIn, tableOf } from './verdict.mjs'

/** @typedef {import('./lessons.mjs').Figures} Figures */
/** @typedef {import('./lessons.mjs').Lesson} Lesson */
/** @typedef {import('./verdict.mjs').Run} Run */

const examples = fileURLToPath(new URL('../../examples/', import.meta.url))
const cores = availableParallelism()

/** Milliseconds that a lesson may take. */
const LIMIT = 180_000
/** How much of a failed lesson's output is shown. */
const LAST_LINES = 20

const options = {
  only: { description: 'titles of lessons, or parts of them; default: all', value: 'A,B' },
  nproc: {
    description: '2 or 4: ranks of the lessons that take any number',
    value: 'N',
    default: cores < 4 ? '2' : '4',
  },
  repeat: {
    description: 'how often each lesson runs; the table has the medians',
    value: 'N',
    default: '1',
  },
  check: { description: 'exit code 1 if a measurement misses its bound' },
  write: { description: 'writes the table into examples/README.md' },
}

/**
 * @param {readonly string[]} args
 * @returns {Promise<number>} the exit code
 */
async function main(args) {
  if (args.includes('--help') || args.includes('-h')) {
    console.log(
      'npm run course -- [options]: runs the lessons, and shows theory beside measurement\n',
    )
    console.log(describeOptions(options))
    return 0
  }
  const values = parseOptions(options, args)
  // Others do not divide the layers and rows of all lessons.
  const [ranks = options.nproc.default] = readList('nproc', values['nproc'], ['2', '4'])
  const machine = { cores, ranks: Number(ranks) }
  const repeat = readInteger('repeat', values['repeat'], 1, 99)
  const begin = performance.now()
  /** @type {Run[]} */
  const runs = []
  for (const lesson of select(values['only'])) {
    const run = await runLesson(lesson, lesson.ranks ?? machine.ranks, repeat)
    runs.push(run)
    const { theory, measured, loss, verdict } = judge(run, machine, runs)
    const beside = theory === undefined ? '' : ` (theory: ${theory})`
    const reached = loss === undefined ? '' : `, loss ${loss.toFixed(4)}`
    const many = `${run.ranks} ${run.ranks === 1 ? 'rank ' : 'ranks'}`
    const start = `${run.title.padEnd(16)}  ${many}  ${run.seconds.toFixed(1).padStart(5)} s`
    console.log(`${start}  ${verdict.padEnd(6)}  ${measured}${beside}${reached}`)
  }
  const total = ((performance.now() - begin) / 1000).toFixed(0)
  const verdicts = runs.map((run) => judge(run, machine, runs).verdict)
  const countOf = (/** @type {string} */ name) => verdicts.filter((each) => each === name).length
  const [failed, wrong, missed] = [countOf('FAILED'), countOf('WRONG'), countOf('MISSED')]
  console.log(`\n${tableOf(runs, machine).join('\n')}\n`)
  console.log(`${runs.length} lessons, ${repeat} x each, in ${total} s on ${cores} cores:`)
  console.log(`${failed} failed, ${wrong} with wrong numbers, ${missed} beyond their bounds.`)
  if (values['write'] === 'true') {
    const page = join(examples, 'README.md')
    const processor = `${cores} cores of ${cpus()[0]?.model ?? 'an unknown processor'}`
    const where = `Medians of ${repeat} on ${processor}, Node.js ${process.version}:`
    writeFileSync(page, recordIn(readFileSync(page, 'utf8'), where, runs, machine))
  }
  return exitCodeOf(verdicts, values['check'] === 'true')
}

/** @param {string | undefined} only */
function select(only) {
  const wanted = splitList(only)
  const found = lessons.filter(
    ({ title }) => wanted.length === 0 || wanted.some((part) => title.includes(part)),
  )
  if (found.length > 0) return found
  const titles = lessons.map(({ title }) => title).join(', ')
  throw new UsageError(`--only: no lesson is called "${only}"; there are ${titles}`)
}

/**
 * @param {Lesson} lesson
 * @param {number} processes - 0: one, without tsrun
 * @param {number} repeat
 * @returns {Promise<Run>}
 */
async function runLesson(lesson, processes, repeat) {
  const run = { title: lesson.title, ranks: Math.max(1, processes) }
  const begin = performance.now()
  const seconds = () => (performance.now() - begin) / 1000
  /** @type {Figures[]} */
  const repeats = []
  while (repeats.length < repeat) {
    const figures = await runOnce(lesson, processes)
    if (figures === undefined) return { ...run, seconds: seconds(), repeats: [] }
    repeats.push(figures)
  }
  return { ...run, seconds: seconds(), repeats }
}

/**
 * @param {Lesson} lesson
 * @param {number} processes - 0: one, without tsrun
 * @returns {Promise<Figures | undefined>} undefined if it failed; then the end of its output is shown
 */
async function runOnce({ script, args = [] }, processes) {
  const path = join(examples, script)
  const { command, args: words } =
    processes === 0
      ? { command: process.execPath, args: ['--import', import.meta.resolve('tsx'), path, ...args] }
      : tsrunLine(processes, path, args)
  const { ok, output, stdout, reason } = await runToEnd(command, words, { timeout: LIMIT })
  const result = ok ? readResult(stdout) : undefined
  if (result === undefined) {
    const last = output.trimEnd().split('\n').slice(-LAST_LINES).join('\n')
    console.error(`${last}\n${script}: ${ok ? 'it printed no result' : reason}`)
  }
  return result
}

try {
  process.exitCode = await main(process.argv.slice(2))
} catch (error) {
  const { code, message } = /** @type {NodeJS.ErrnoException} */ (error)
  if (code !== 'ERR_BENCH_USAGE') throw error
  console.error(`course: ${message}`)
  process.exitCode = 2
}
