import { fileURLToPath } from 'node:url'
import { readInteger, readList } from '../command-line.mjs'
import { compile, runProgram, runRanks, tsrunLine, withFolder } from '../programs.mjs'
import {
  formatRecords,
  median,
  parseSize,
  percentile,
  printRows,
  significant,
} from '../figures.mjs'

const rank = fileURLToPath(new URL('./ping-pong-rank.mjs', import.meta.url))
const source = new URL('./ping-pong.c', import.meta.url)
const transports = /** @type {const} */ (['tcp', 'shared-memory', 'node'])
const engines = /** @type {const} */ (['inline', 'worker'])

/** Ours needs more of them because of the just-in-time compiler. */
const WARM_UPS = { c: 1000, ours: 5000 }

/** @type {import('../command-line.mjs').Command} */
export const pingPong = {
  summary: 'round trip between two ranks, compared with a minimal C program over TCP',
  options: {
    bytes: { value: '<size>', default: '64B', description: 'of the message' },
    transport: { value: '<list>', default: 'tcp', description: `ours: ${transports.join(', ')}` },
    engine: { value: '<list>', default: 'inline', description: 'ours: inline, worker' },
    repeats: { value: '<n>', default: '5000', description: 'round trips per round' },
    runs: { value: '<n>', default: '3', description: 'rounds; ours and C take turns' },
    json: { description: 'one JSON object per line instead of the table' },
  },
  run: async (values) => {
    const rows = await withFolder((folder) =>
      measurePingPong(folder, {
        bytes: parseSize(values['bytes'] ?? ''),
        systems: readList('transport', values['transport'], transports).flatMap((transport) =>
          readList('engine', values['engine'], engines)
            .filter((engine) => transport !== 'node' || engine === 'worker')
            .map((engine) => ({ transport, engine })),
        ),
        repeats: readInteger('repeats', values['repeats'], 1, 1_000_000),
        runs: readInteger('runs', values['runs'], 1, 100),
      }),
    )
    printRows(rows, values.json !== undefined, formatRecords)
    return 0
  },
}

/**
 * @param {string} folder - for what is compiled
 * @param {object} options
 * @param {number} options.bytes
 * @param {readonly { transport: string, engine: string }[]} options.systems - ours
 * @param {number} options.repeats
 * @param {number} options.runs
 */
export async function measurePingPong(folder, { bytes, systems, repeats, runs }) {
  const program = await compile(source, folder)
  const numbers = (/** @type {number} */ warmUps) => [bytes, warmUps, repeats].map(String)
  /** @type {Map<string, { p50: number, p99: number }[]>} */
  const rounds = new Map()
  const record = (/** @type {string} */ name, /** @type {string} */ text) => {
    const us = text.trim().split('\n').map(Number)
    const round = { p50: percentile(us, 0.5), p99: percentile(us, 0.99) }
    rounds.set(name, [...(rounds.get(name) ?? []), round])
  }
  for (let round = 1; round <= runs; round++) {
    console.error(`round ${round} of ${runs}`)
    if (program !== undefined) {
      record('C tcp', await runProgram('C tcp', { command: program, args: numbers(WARM_UPS.c) }))
    }
    for (const { transport, engine } of systems) {
      const name = `tsrun ${transport} ${engine}`
      const args = [transport, engine, ...numbers(WARM_UPS.ours)]
      record(name, await runRanks(name, (output) => tsrunLine(2, rank, [output, ...args])))
    }
  }
  const p50Of = (/** @type {string} */ name) =>
    median((rounds.get(name) ?? []).map((round) => round.p50))
  return [...rounds].map(([system, list]) => ({
    system,
    bytes,
    p50Us: significant(p50Of(system)),
    p99Us: significant(median(list.map((round) => round.p99))),
    timesC: rounds.has('C tcp') ? significant(p50Of(system) / p50Of('C tcp'), 3) : null,
  }))
}
