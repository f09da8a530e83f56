import { fileURLToPath } from 'node:url'
import { RunError, runToEnd, tsrunLine } from '../programs.mjs'
import { readInteger } from '../command-line.mjs'
import { formatRecords, median, printRows } from '../figures.mjs'

const empty = fileURLToPath(new URL('empty-rank.mjs', import.meta.url))

/** @type {import('../command-line.mjs').Command} */
export const launcher = {
  summary: 'time that tsrun adds to an empty script, compared with as many plain processes',
  options: {
    ranks: { value: '<n>', default: '4', description: 'processes' },
    runs: { value: '<n>', default: '9', description: 'pairs of runs' },
    json: { description: 'one JSON object instead of the table' },
  },
  run: async (values) => {
    const ranks = readInteger('ranks', values['ranks'], 1, 64)
    const runs = readInteger('runs', values['runs'], 1, 100)
    await Promise.all([throughTsrun(ranks), plainly(ranks)])
    /** @type {{ tsrun: number, plain: number }[]} */
    const pairs = []
    for (let i = 0; i < runs; i++) {
      pairs.push({ tsrun: await throughTsrun(ranks), plain: await plainly(ranks) })
    }
    const row = {
      benchmark: 'launcher',
      ranks,
      tsrunMs: Math.round(median(pairs.map((pair) => pair.tsrun))),
      plainMs: Math.round(median(pairs.map((pair) => pair.plain))),
      addedMs: Math.round(median(pairs.map((pair) => pair.tsrun - pair.plain))),
    }
    printRows([row], values.json !== undefined, formatRecords)
    return 0
  },
}

/** @param {number} ranks */
async function throughTsrun(ranks) {
  return timed(() => start(tsrunLine(ranks, empty).args))
}

/** @param {number} ranks */
async function plainly(ranks) {
  return timed(() => Promise.all(Array.from({ length: ranks }, () => start([empty]))))
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
  const start = performance.now()
  await job()
  return performance.now() - start
}
