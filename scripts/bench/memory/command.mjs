import { fileURLToPath } from 'node:url'
import { readInteger, readList } from '../command-line.mjs'
import { runRanks, tsrunLine } from '../programs.mjs'
import { formatRecords, printRows, significant } from '../figures.mjs'

const rank = fileURLToPath(new URL('./memory-rank.mjs', import.meta.url))
const transports = /** @type {const} */ (['shared-memory', 'tcp'])

/** @type {import('../command-line.mjs').Command} */
export const memory = {
  summary: 'growth over many operations, and memory per peer',
  options: {
    operations: { value: '<n>', default: '100000', description: 'of each of two ranks' },
    peers: {
      value: '<n>',
      default: '64',
      description: 'number of peers; 0 skips this measurement',
    },
    transport: { value: '<list>', default: transports.join(','), description: 'ours' },
    json: { description: 'one JSON object per line instead of the table' },
  },
  run: async (values) => {
    const rows = await measureMemory({
      operations: readInteger('operations', values['operations'], 1000, 100_000_000),
      peers: readInteger('peers', values['peers'], 0, 255),
      transports: readList('transport', values['transport'], transports),
    })
    printRows(rows, values.json !== undefined, formatRecords)
    return 0
  },
}

/**
 * `growthMiB`: by how much the resident memory of a rank grows over the operations, once the just-in-
 * time compiler is warm. `peersMiB`: how much more resident memory a rank with that many peers has
 * than one with a single peer.
 *
 * @param {{ operations: number, peers: number, transports: readonly string[] }} options
 */
export async function measureMemory({ operations, peers, transports }) {
  const rows = []
  for (const transport of transports) {
    console.error(`${operations} operations: ${transport}`)
    const growthMiB = await job(2, ['growth', transport, String(operations)])
    let peersMiB = null
    if (peers > 0) {
      console.error(`1 and ${peers} peers: ${transport}`)
      const one = await job(2, ['resident', transport])
      const many = await job(peers + 1, ['resident', transport])
      peersMiB = significant(many - one, 3)
    }
    rows.push({ transport, operations, growthMiB: significant(growthMiB, 3), peers, peersMiB })
  }
  return rows
}

/**
 * @param {number} ranks
 * @param {readonly string[]} args
 * @returns {Promise<number>} mebibytes, of the rank that has most
 */
async function job(ranks, args) {
  const text = await runRanks(`${ranks} ranks`, (output) =>
    tsrunLine(ranks, rank, [output, ...args]),
  )
  return Number(text)
}
