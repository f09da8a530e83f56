import { execFileSync } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { readFile } from 'node:fs/promises'
import { join as joinPath } from 'node:path'
import { fileURLToPath } from 'node:url'
import { readInteger, splitList, UsageError } from '../command-line.mjs'
import { formatRecords, median, printRows } from '../figures.mjs'
import { runProgram, tsrunLine, withFolder } from '../programs.mjs'

const script = fileURLToPath(new URL('join-rank.mjs', import.meta.url))
const cluster = fileURLToPath(new URL('../../netns-cluster.sh', import.meta.url))

/** @type {import('../command-line.mjs').Command} */
export const join = {
  summary: 'time until all ranks of a job have joined, by their number and that of the hosts',
  options: {
    ranks: { value: '<list>', default: '4,16,64', description: 'numbers of ranks' },
    hosts: {
      value: '<n>',
      default: '1',
      description:
        'hosts made of network namespaces, which the ranks are divided among; needs root',
    },
    runs: { value: '<n>', default: '3', description: 'jobs for each number of ranks' },
    json: { description: 'one JSON object for each number of ranks instead of the table' },
  },
  run: async (values) => {
    const hosts = readInteger('hosts', values['hosts'], 1, 64)
    const runs = readInteger('runs', values['runs'], 1, 100)
    const counts = splitList(values['ranks']).map((text) => {
      const ranks = readInteger('ranks', text, 1, 4096)
      if (ranks % hosts !== 0) throw new UsageError(`${ranks} ranks cannot be divided by ${hosts}`)
      return ranks
    })
    const rows = []
    for (const ranks of counts) {
      const times = []
      for (let i = 0; i < runs; i++) times.push(await measure(ranks, hosts))
      /** @param {keyof Times} name */
      const middle = (name) => Math.round(median(times.map((one) => one[name])))
      rows.push({
        ...{ benchmark: 'join', hosts, ranks, joinedMs: middle('joinedMs') },
        ...{ joiningMs: middle('joiningMs'), totalMs: middle('totalMs') },
      })
    }
    printRows(rows, values['json'] !== undefined, formatRecords)
    return 0
  },
}

/**
 * @typedef {object} Times - in milliseconds
 * @property {number} joinedMs - from the start of tsrun until all ranks have passed a barrier
 * @property {number} joiningMs - the part of rank 0, from `initProcessGroup` on
 * @property {number} totalMs - until tsrun has ended
 */

/**
 * @param {number} ranks
 * @param {number} hosts
 * @returns {Promise<Times>}
 */
function measure(ranks, hosts) {
  return withFolder(async (folder) => {
    const output = joinPath(folder, 'joined')
    const start = Date.now()
    if (hosts === 1) await runProgram('tsrun', tsrunLine(ranks, script, [output]))
    else await onHosts(ranks / hosts, hosts, output)
    const totalMs = Date.now() - start
    const { joined, joiningMs } = JSON.parse(await readFile(output, 'utf8'))
    return { joinedMs: joined - start, joiningMs, totalMs }
  })
}

/**
 * Runs a job on hosts of its own.
 *
 * @param {number} nproc
 * @param {number} hosts
 * @param {string} output
 */
async function onHosts(nproc, hosts, output) {
  const name = execFileSync(cluster, ['up', String(hosts), String(process.pid)], {
    encoding: 'utf8',
  }).trim()
  try {
    const token = randomBytes(32).toString('hex')
    await Promise.all(
      Array.from({ length: hosts }, async (_, host) => {
        const { command, args } = tsrunLine(nproc, script, [output])
        const [bin, ...job] = args
        const flags = ['--nnodes', String(hosts), '--node-rank', String(host)]
        const endpoint = ['--rdzv-endpoint', 'n0:29500']
        const line = [command, bin ?? '', ...flags, ...endpoint, ...job]
        const onHost = { command: cluster, args: ['run', name, String(host), ...line] }
        await runProgram(`tsrun on n${host}`, { ...onHost, env: { TSRUN_TOKEN: token } })
      }),
    )
  } finally {
    execFileSync(cluster, ['down', name])
  }
}
