import { availableParallelism } from 'node:os'
import { fileURLToPath } from 'node:url'
import { formatBytes } from '@tsrun/core'
import { readInteger, readList, UsageError } from '../command-line.mjs'
import { runRanks, tsrunLine } from '../programs.mjs'
import { formatRecords, median, parseSize, printRows, significant } from '../figures.mjs'

const rank = fileURLToPath(new URL('./overlap-rank.mjs', import.meta.url))
const transports = /** @type {const} */ (['shared-memory', 'tcp', 'node'])

/** @type {import('../command-line.mjs').Command} */
export const overlap = {
  summary: 'how much of an all-reduce is hidden by a computation on the main thread',
  options: {
    ranks: { value: '<n>', default: '2', description: 'processes' },
    size: { value: '<size>', default: '64MiB', description: 'of the buffer' },
    transport: { value: '<list>', default: 'shared-memory,tcp', description: 'ours' },
    repeats: { value: '<n>', default: '5', description: 'repetitions in a round' },
    runs: { value: '<n>', default: '3', description: 'rounds' },
    json: { description: 'one JSON object per line instead of the table' },
  },
  run: async (values) => {
    const bytes = parseSize(values['size'] ?? '')
    if (bytes % 4 !== 0 || bytes > 2 ** 29) throw new UsageError('--size: float32, up to 512MiB')
    const rows = await measureOverlap({
      ranks: readInteger('ranks', values['ranks'], 2, 64),
      bytes,
      transports: readList('transport', values['transport'], transports),
      repeats: readInteger('repeats', values['repeats'], 1, 1000),
      runs: readInteger('runs', values['runs'], 1, 100),
    })
    printRows(rows, values.json !== undefined, formatRecords)
    return 0
  },
}

/**
 * `hidden` is the share of the time of the communication that does not add to the time of the
 * computation.
 *
 * @param {object} options
 * @param {number} options.ranks
 * @param {number} options.bytes
 * @param {readonly string[]} options.transports
 * @param {number} options.repeats
 * @param {number} options.runs
 */
export async function measureOverlap({ ranks, bytes, transports, repeats, runs }) {
  const rows = []
  for (const transport of transports) {
    /** @type {Record<'communicationMs' | 'computationMs' | 'bothMs' | 'hidden', number>[]} */
    const rounds = []
    for (let round = 1; round <= runs; round++) {
      console.error(`round ${round} of ${runs}: ${transport}`)
      const args = [transport, bytes, repeats].map(String)
      const line = (/** @type {string} */ output) => tsrunLine(ranks, rank, [output, ...args])
      rounds.push(JSON.parse(await runRanks(`${transport} worker`, line)))
    }
    const of = (/** @type {keyof (typeof rounds)[0]} */ key) =>
      significant(median(rounds.map((round) => round[key])), 3)
    rows.push({
      ...{ transport, ranks, cores: availableParallelism(), size: formatBytes(bytes) },
      communicationMs: of('communicationMs'),
      computationMs: of('computationMs'),
      bothMs: of('bothMs'),
      hidden: of('hidden'),
    })
  }
  return rows
}
