// Runs the lessons of examples/README.md in their order, and shows theory beside measurement:
//   npm run course -- --help
import { readFileSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { tsrunHome } from '@tsrun/core'
import {
  describeOptions,
  parseOptions,
  readList,
  splitList,
  UsageError,
} from '../bench/command-line.mjs'
import { runToEnd, tsrunLine } from '../bench/programs.mjs'
import { lessons, readCourse, readResult, rowOf, tableOf } from './lessons.mjs'

/** @typedef {import('./lessons.mjs').Lesson} Lesson */
/** @typedef {import('./lessons.mjs').Run} Run */

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
  const begin = performance.now()
  /** @type {Run[]} */
  const runs = []
  for (const lesson of select(values['only'])) {
    const run = await runLesson(lesson, lesson.ranks ?? machine.ranks)
    runs.push(run)
    const [title = '', ranks, theory, measured, loss, seconds = ''] = rowOf(run, machine, runs)
    const beside = theory === '' ? '' : ` (theory: ${theory})`
    const reached = loss === '' ? '' : `, loss ${loss}`
    const many = `${ranks} ${ranks === '1' ? 'rank ' : 'ranks'}`
    const start = `${title.padEnd(16)}  ${many}  ${seconds.padStart(5)} s`
    console.log(`${start}  ${measured}${beside}${reached}`)
  }
  const failed = runs.filter(({ figures }) => figures === undefined).length
  const total = ((performance.now() - begin) / 1000).toFixed(0)
  console.log(`\n${tableOf(runs, machine).join('\n')}`)
  console.log(`\n${runs.length} runs in ${total} s on ${cores} cores, ${failed} failed.`)
  return failed === 0 ? 0 : 1
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
 * @returns {Promise<Run>}
 */
async function runLesson({ title, script, args = [] }, processes) {
  const path = join(examples, script)
  const { command, args: words } =
    processes === 0
      ? { command: process.execPath, args: ['--import', import.meta.resolve('tsx'), path, ...args] }
      : tsrunLine(processes, path, args)
  const begin = performance.now()
  const { ok, output, stdout, reason } = await runToEnd(command, words, { timeout: LIMIT })
  const seconds = (performance.now() - begin) / 1000
  const run = { title, ranks: Math.max(1, processes), seconds }
  const result = ok ? readResult(stdout) : undefined
  if (result === undefined) {
    const last = output.trimEnd().split('\n').slice(-LAST_LINES).join('\n')
    console.error(`${last}\n${script}: ${ok ? 'it printed no result' : reason}`)
    return { ...run, figures: undefined }
  }
  const inCourse = /^0[1-6]/.test(script) ? readCourse(courseFile(), run) : {}
  return { ...run, figures: { ...result, ...inCourse } }
}

/** What the lessons 01 to 06 keep for their table. */
function courseFile() {
  try {
    return readFileSync(join(tsrunHome(), 'course.json'), 'utf8')
  } catch {
    return '{"lessons":[]}'
  }
}

try {
  process.exitCode = await main(process.argv.slice(2))
} catch (error) {
  const { code, message } = /** @type {NodeJS.ErrnoException} */ (error)
  if (code !== 'ERR_BENCH_USAGE') throw error
  console.error(`course: ${message}`)
  process.exitCode = 2
}
