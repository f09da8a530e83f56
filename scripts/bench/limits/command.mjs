import { formatBytes } from '@tsrun/core'
import { operations, plan } from '../collectives/plan.mjs'
import { measureAll } from '../collectives/rounds.mjs'
import { nameOf, tsrunSystems } from '../collectives/systems.mjs'
import { readInteger, readList, splitList, UsageError } from '../command-line.mjs'
import { formatRecords, median, parseSize, printRows, significant } from '../figures.mjs'
import { compile, RunError, runProgram, withFolder } from '../programs.mjs'

const source = new URL('./limits.c', import.meta.url)
/** Seconds that each rate is measured for in a round. */
const SECONDS = '0.5'

/**
 * The bytes that one rank has to add and to copy, read and written, as multiples of the full buffer.
 * What each rank adds is read once from every rank and written once.
 *
 * @type {Readonly<Record<import('../collectives/plan.mjs').Operation, (n: number) => { added: number, copied: number }>>}
 */
const traffic = {
  allReduce: (n) => ({ added: (n + 1) / n, copied: (2 * (n - 1)) / n }),
  reduceScatter: (n) => ({ added: (n + 1) / n, copied: 0 }),
  allGather: () => ({ added: 0, copied: 2 }),
  broadcast: (n) => ({ added: 0, copied: (2 * (n - 1)) / n }),
  allToAll: () => ({ added: 0, copied: 2 }),
  sendRecv: () => ({ added: 0, copied: 2 }),
}

/** @type {import('../command-line.mjs').Command} */
export const limits = {
  summary: 'large collectives as a share of what the bandwidth of the memory allows',
  options: {
    ranks: { value: '<n>', default: '4', description: 'processes, all on this host' },
    ops: { value: '<list>', default: operations.join(','), description: 'operations' },
    sizes: { value: '<list>', default: '16MiB,64MiB', description: 'of the full buffer' },
    engine: { value: '<list>', default: 'inline', description: 'ours: worker, inline' },
    runs: { value: '<n>', default: '3', description: 'rounds' },
    json: { description: 'one JSON object per line instead of the table' },
  },
  run: async (values) => {
    const sizes = splitList(values['sizes']).map(parseSize)
    if (sizes.length === 0) throw new UsageError('--sizes is empty')
    if (sizes.some((bytes) => bytes > 2 ** 28)) throw new UsageError('--sizes: at most 256MiB')
    const ops = readList('ops', values['ops'], operations)
    if (ops.length === 0) throw new UsageError('--ops is empty')
    const rows = await measureLimits({
      ranks: readInteger('ranks', values['ranks'], 2, 64),
      ops,
      sizes,
      engines: readList('engine', values['engine'], /** @type {const} */ (['worker', 'inline'])),
      runs: readInteger('runs', values['runs'], 1, 100),
    })
    if (rows === undefined) return 0
    printRows(rows, values.json !== undefined, formatRecords)
    return 0
  },
}

/**
 * `limitUs` is the time in which all ranks together could move the bytes of the operation, if each did
 * nothing but copy and add as a C program does; `share` is that as a share of the measured time.
 *
 * @param {object} options
 * @param {number} options.ranks
 * @param {readonly import('../collectives/plan.mjs').Operation[]} options.ops
 * @param {readonly number[]} options.sizes - bytes
 * @param {readonly ('worker' | 'inline')[]} options.engines
 * @param {number} options.runs
 * @returns {Promise<Record<string, string | number>[] | undefined>} undefined where there is no C compiler
 * @throws ERR_BENCH_RUN
 */
export async function measureLimits({ ranks, ops, sizes, engines, runs }) {
  const rates = await measureRates(ranks, Math.max(...sizes), runs)
  if (rates === undefined) return undefined
  const { rows, failures } = await measureAll({
    systems: tsrunSystems(['shared-memory'], engines),
    steps: plan(ops, sizes, ranks),
    ranks,
    runs,
  })
  if (failures > 0) throw new RunError('no limits, because not every system could be measured')
  return rows.map((row) => {
    const { added, copied } = traffic[row.op](ranks)
    const seconds = ranks * row.bytes * (added / rates.add + copied / rates.copy)
    return {
      ...{ op: row.op, bytes: formatBytes(row.bytes), ranks, system: nameOf(row) },
      copyGBs: significant(rates.copy / 1e9, 3),
      addGBs: significant(rates.add / 1e9, 3),
      p50Us: row.p50Us,
      limitUs: significant(seconds * 1e6),
      share: significant((seconds * 1e6) / row.p50Us, 3),
    }
  })
}

/**
 * The bytes per second that so many C programs read and write together.
 *
 * @param {number} processes
 * @param {number} bytes - of each array
 * @param {number} runs
 * @returns {Promise<{ copy: number, add: number } | undefined>}
 */
async function measureRates(processes, bytes, runs) {
  return withFolder(async (folder) => {
    const program = await compile(source, folder)
    if (program === undefined) return undefined
    /** @type {{ copy: number, add: number }[]} */
    const rounds = []
    for (let round = 1; round <= runs; round++) {
      console.error(`round ${round} of ${runs}: ${processes} C programs`)
      const args = [String(bytes), SECONDS]
      const texts = await Promise.all(
        Array.from({ length: processes }, () => runProgram('limits', { command: program, args })),
      )
      const all = texts.map((text) => text.trim().split(' ').map(Number))
      const sum = (/** @type {number} */ i) =>
        all.reduce((total, each) => total + (each[i] ?? 0), 0)
      rounds.push({ copy: sum(0), add: sum(1) })
    }
    const of = (/** @type {'copy' | 'add'} */ key) => median(rounds.map((round) => round[key]))
    return { copy: of('copy'), add: of('add') }
  })
}
