import { fileURLToPath } from 'node:url'
import { readInteger, readList } from '../command-line.mjs'
import { formatRecords, median, printRows } from '../figures.mjs'
import { whyNoHosts } from '../hosts.mjs'
import { measureJoining } from '../join/command.mjs'
import { describeMachine, RunError, runToEnd, tsrunLine } from '../programs.mjs'
import { measureCut, measureHostsEnd, measureLocalEnd } from './ends.mjs'
import { measureOutput } from './output.mjs'

const empty = fileURLToPath(new URL('empty-rank.mjs', import.meta.url))

/**
 * @typedef {object} Figure
 * @property {string} what
 * @property {string} measured
 * @property {string} bound
 * @property {string} holds - `yes` or `no`; empty where nothing was measured, or where there is no bound
 */

/** @type {Readonly<Record<string, (runs: number) => Promise<Figure[]>>>} */
const parts = {
  start: measureStart,
  kill: async (runs) => {
    const times = await repeated(runs, () => measureLocalEnd(4))
    return [timeFigure('all gone after the kill of one of 4 ranks', Math.max(...times), 1000)]
  },
  'kill-hosts': (runs) =>
    onHosts('all gone after the kill of one of 6 ranks on 3 hosts', 2000, async () =>
      Math.max(...(await repeated(runs, () => measureHostsEnd(3)))),
    ),
  cut: () => onHosts('link of one of 3 hosts cut, host named', 10_000, () => measureCut(3)),
  join: () =>
    onHosts('64 ranks on 4 hosts joined', 15_000, async () => {
      const { joinedMs } = await measureJoining(64, 4)
      return joinedMs
    }),
  output: async () => {
    const { peakMB, wrong } = await measureOutput(64, 6)
    const what = '64 ranks that write 10 MB/s of lines'
    return [
      figure(`${what}: memory of the launcher`, `${Math.round(peakMB)} MB`, '200 MB', peakMB < 200),
      figure(`${what}: lost, torn, out of order`, String(wrong), '0', wrong === 0),
    ]
  },
}

/** @type {import('../command-line.mjs').Command} */
export const launcher = {
  summary: 'how fast tsrun starts, ends and joins ranks, and what it does with much output',
  options: {
    only: {
      value: '<list>',
      default: Object.keys(parts).join(','),
      description: 'parts of the table',
    },
    runs: { value: '<n>', default: '5', description: 'of what is short' },
    json: { description: 'one JSON object for each figure instead of the table' },
  },
  run: async (values) => {
    const runs = readInteger('runs', values['runs'], 1, 100)
    const rows = []
    for (const name of readList('only', values['only'], Object.keys(parts))) {
      rows.push(...((await parts[name]?.(runs)) ?? []))
    }
    const json = values.json !== undefined
    if (!json) {
      const { cpu, cores, node } = describeMachine()
      console.log(`${cpu}, ${cores} cores, Node.js ${node}\n`)
    }
    printRows(rows, json, formatRecords)
    return rows.some(({ holds }) => holds === 'no') ? 1 : 0
  },
}

/**
 * An empty job of four ranks beside one process, and beside four at once, in turn.
 *
 * @param {number} runs
 */
async function measureStart(runs) {
  const job = () => timed(() => start(tsrunLine(4, empty).args))
  const one = () => timed(() => start([empty]))
  const four = () => timed(() => Promise.all(Array.from({ length: 4 }, () => start([empty]))))
  await Promise.all([job(), one()])
  const rounds = await repeated(runs, async () => {
    return { job: await job(), one: await one(), four: await four() }
  })
  const of = (/** @type {'job' | 'one' | 'four'} */ name) =>
    median(rounds.map((round) => round[name]))
  const bound = 1.3 * of('one') + 300
  return [
    figure(
      'empty job of 4 ranks',
      inSeconds(of('job')),
      `${inSeconds(bound)}: 1.3 x one process (${inSeconds(of('one'))}) + 0.3 s`,
      of('job') <= bound,
    ),
    figure(
      'empty job of 4 ranks, beyond 4 processes at once',
      inSeconds(of('job') - of('four')),
      '',
    ),
  ]
}

/**
 * A figure of several hosts, or why there is none.
 *
 * @param {string} what
 * @param {number} bound - milliseconds
 * @param {() => Promise<number>} measure
 */
async function onHosts(what, bound, measure) {
  const reason = whyNoHosts()
  if (reason === undefined) return [timeFigure(what, await measure(), bound)]
  return [figure(what, `skipped: ${reason}`, inSeconds(bound))]
}

/**
 * @param {string} what
 * @param {number} measured - milliseconds
 * @param {number} bound - milliseconds
 */
function timeFigure(what, measured, bound) {
  return figure(what, inSeconds(measured), inSeconds(bound), measured <= bound)
}

/**
 * @param {string} what
 * @param {string} measured
 * @param {string} bound
 * @param {boolean} [holds]
 * @returns {Figure}
 */
function figure(what, measured, bound, holds) {
  return { what, measured, bound, holds: holds === undefined ? '' : holds ? 'yes' : 'no' }
}

/** @param {number} milliseconds */
function inSeconds(milliseconds) {
  return `${(milliseconds / 1000).toFixed(2)} s`
}

/**
 * @template T
 * @param {number} runs
 * @param {() => Promise<T>} run
 * @returns {Promise<T[]>}
 */
async function repeated(runs, run) {
  const results = []
  for (let i = 0; i < runs; i++) results.push(await run())
  return results
}

/** @param {readonly string[]} args */
async function start(args) {
  const { ok, reason, output } = await runToEnd(process.execPath, args)
  if (!ok) throw new RunError(`node ${args.join(' ')}: ${reason}\n${output}`)
}

/**
 * @param {() => Promise<unknown>} job
 * @returns {Promise<number>} milliseconds
 */
async function timed(job) {
  const since = performance.now()
  await job()
  return performance.now() - since
}
