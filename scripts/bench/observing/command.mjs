import { spawn } from 'node:child_process'
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { readInteger } from '../command-line.mjs'
import { formatRecords, median, printRows, significant } from '../figures.mjs'
import { RunError, tsrunLine, withFolder } from '../programs.mjs'

const script = fileURLToPath(new URL('observing-rank.mjs', import.meta.url))

/** @typedef {(address: string, stop: AbortSignal) => Promise<void>} Reader */

/**
 * What watches a job: flags of tsrun, and who reads at the address that it prints.
 *
 * @type {Readonly<Record<string, { flags: (folder: string) => string[], reader?: Reader }>>}
 */
const watchers = {
  trace: { flags: (folder) => ['--trace', join(folder, 'trace')] },
  dashboard: { flags: () => ['--dashboard', '0'], reader: readEvents },
  metrics: { flags: () => ['--metrics', '0'], reader: scrape },
}

/** @type {import('../command-line.mjs').Command} */
export const observing = {
  summary: 'what a job pays for --trace, --dashboard with an open page, and --metrics',
  options: {
    ranks: {
      value: '<n>',
      default: '2',
      description: 'ranks on this host, a stage of a pipeline each',
    },
    steps: { value: '<n>', default: '400', description: 'steps that are timed in each job' },
    runs: { value: '<n>', default: '9', description: 'rounds, with one job of each kind' },
    json: { description: 'one JSON object a row instead of the table' },
  },
  run: async (values) => {
    const ranks = readInteger('ranks', values['ranks'], 1, 256)
    const steps = readInteger('steps', values['steps'], 10, 1_000_000)
    const runs = readInteger('runs', values['runs'], 1, 1000)
    const kinds = ['off', ...Object.keys(watchers)]
    /** @type {Record<string, number>[]} */
    const rounds = []
    for (let round = 0; round < runs; round++) {
      // Each kind comes first as often as the others.
      const order = kinds.map((_, i) => kinds[(i + round) % kinds.length] ?? '')
      /** @type {Record<string, number>} */
      const times = {}
      for (const kind of order) {
        console.error(`observing: round ${round + 1} of ${runs}, ${kind}`)
        times[kind] = await timeSteps(kind, ranks, steps)
      }
      rounds.push(times)
    }
    const of = (/** @type {string} */ kind) => rounds.map((times) => times[kind] ?? NaN)
    const rows = kinds.map((kind) => ({
      ...{ benchmark: 'observing', watched: kind, ranks, stepMs: significant(median(of(kind))) },
      ratio: significant(median(of(kind).map((time, i) => time / (of('off')[i] ?? NaN)))),
    }))
    printRows(rows, values['json'] !== undefined, formatRecords)
    return 0
  },
}

/**
 * The median time of a step of one job, in milliseconds.
 *
 * @param {string} kind
 * @param {number} ranks
 * @param {number} steps
 * @returns {Promise<number>}
 * @throws ERR_BENCH_RUN
 */
function timeSteps(kind, ranks, steps) {
  return withFolder(async (folder) => {
    const { flags, reader } = watchers[kind] ?? { flags: () => [] }
    const output = join(folder, 'output')
    const { command, args } = tsrunLine(ranks, script, [output, String(steps)])
    const [program = '', ...rest] = args
    const child = spawn(command, [program, ...flags(folder), ...rest], {
      stdio: ['ignore', 'ignore', 'pipe'],
    })
    const reading = new AbortController()
    /** @type {Promise<void> | undefined} */
    let read
    let text = ''
    child.stderr.setEncoding('utf8').on('data', (/** @type {string} */ part) => {
      text += part
      const address = /: (http:\S+)\n/.exec(text)?.[1]
      if (address !== undefined && reader !== undefined) read ??= reader(address, reading.signal)
    })
    const code = await new Promise((resolve) => child.once('close', resolve))
    reading.abort()
    await read
    if (code !== 0) throw new RunError(`the job with ${kind} failed\n${text}`)
    return Number(await readFile(output, 'utf8'))
  })
}

/**
 * As an open page of the dashboard.
 *
 * @type {Reader}
 */
async function readEvents(address, signal) {
  const { headers } = await fetch(address, { redirect: 'manual', signal })
  const cookie = headers.get('set-cookie')?.split(';')[0] ?? ''
  try {
    const { body } = await fetch(new URL('/events', address), { headers: { cookie }, signal })
    for await (const _ of body ?? []);
  } catch {
    // The job has ended.
  }
}

/**
 * As Prometheus, but once a second.
 *
 * @type {Reader}
 */
async function scrape(address, signal) {
  while (!signal.aborted) {
    await fetch(address, { signal })
      .then((response) => response.text())
      .catch(() => undefined)
    await new Promise((resolve) => setTimeout(resolve, 1000))
  }
}
