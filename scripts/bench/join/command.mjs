import { readFile, writeFile } from 'node:fs/promises'
import { join as joinPath } from 'node:path'
import { fileURLToPath, pathToFileURL } from 'node:url'
import { readInteger, splitList, UsageError } from '../command-line.mjs'
import { formatRecords, median, printRows } from '../figures.mjs'
import { withHosts } from '../hosts.mjs'
import { runProgram, tsrunLine, withFolder } from '../programs.mjs'

const script = fileURLToPath(new URL('join-rank.mjs', import.meta.url))

/** @type {import('../command-line.mjs').Command} */
export const join = {
  summary: 'time and CPU time until all ranks of a job have joined, by their number',
  options: {
    ranks: { value: '<list>', default: '4,16,64', description: 'numbers of ranks' },
    hosts: {
      value: '<n>',
      default: '1',
      description:
        'hosts made of network namespaces, which the ranks are divided among; needs root',
    },
    clients: {
      value: '<n>',
      description: 'instead, this many simulated clients on the code of the store',
    },
    runs: { value: '<n>', default: '3', description: 'jobs for each number of ranks' },
    typescript: { description: 'the script of the ranks is in TypeScript' },
    json: { description: 'one JSON object for each number of ranks instead of the table' },
  },
  run: async (values) => {
    const isJson = values['json'] !== undefined
    if (values['clients'] !== undefined) {
      const clients = readInteger('clients', values['clients'], 1, 1_000_000)
      const { simulateJoining } = await import('./simulated-clients.ts')
      const row = { benchmark: 'join', clients, ...simulateJoining(clients) }
      printRows([row], isJson, formatRecords)
      return 0
    }
    const hosts = readInteger('hosts', values['hosts'], 1, 64)
    const runs = readInteger('runs', values['runs'], 1, 100)
    const counts = splitList(values['ranks']).map((text) => {
      const ranks = readInteger('ranks', text, 1, 4096)
      if (ranks % hosts !== 0) throw new UsageError(`${ranks} ranks cannot be divided by ${hosts}`)
      return ranks
    })
    const isTypeScript = values['typescript'] !== undefined
    const rows = []
    for (const ranks of counts) {
      const times = []
      for (let i = 0; i < runs; i++) times.push(await measureJoining(ranks, hosts, isTypeScript))
      /** @param {keyof Times} name */
      const middle = (name) => Math.round(median(times.map((one) => one[name])))
      rows.push({
        benchmark: 'join',
        hosts,
        ranks,
        joinedMs: middle('joinedMs'),
        joiningMs: middle('joiningMs'),
        totalMs: middle('totalMs'),
        rankCpuMs: middle('rankCpuMs'),
        launcherCpuMs: middle('launcherCpuMs'),
        launcherMB: middle('launcherMB'),
      })
    }
    printRows(rows, isJson, formatRecords)
    return 0
  },
}

/**
 * @typedef {object} Times - in milliseconds
 * @property {number} joinedMs - from the start of tsrun until all ranks have passed a barrier
 * @property {number} joiningMs - the part of rank 0, from `initProcessGroup` on
 * @property {number} totalMs - until tsrun has ended
 * @property {number} rankCpuMs - CPU time of a rank until `initProcessGroup` has returned, the median
 * @property {number} launcherCpuMs - CPU time of the launcher of rank 0 until all ranks have joined
 * @property {number} launcherMB - its peak memory until then
 */

/**
 * @param {number} ranks
 * @param {number} hosts
 * @param {boolean} [isTypeScript] - the language of the script
 * @returns {Promise<Times>}
 */
export function measureJoining(ranks, hosts, isTypeScript = false) {
  return withFolder(async (folder) => {
    const output = joinPath(folder, 'joined')
    const program = isTypeScript ? joinPath(folder, 'join-rank.mts') : script
    if (isTypeScript) await writeFile(program, `import '${pathToFileURL(script)}'\n`)
    const start = Date.now()
    if (hosts === 1) await runProgram('tsrun', tsrunLine(ranks, program, [output]))
    else await onHosts(ranks / hosts, hosts, program, output)
    const totalMs = Date.now() - start
    const { joined, joiningMs, cpuMs, launcher } = JSON.parse(await readFile(output, 'utf8'))
    return {
      joinedMs: joined - start,
      joiningMs,
      totalMs,
      rankCpuMs: median(cpuMs),
      launcherCpuMs: launcher.cpuMs,
      launcherMB: launcher.peakMB,
    }
  })
}

/**
 * Runs a job on hosts of its own.
 *
 * @param {number} nproc
 * @param {number} count
 * @param {string} program
 * @param {string} output
 */
async function onHosts(nproc, count, program, output) {
  await withHosts(count, (hosts) =>
    Promise.all(
      Array.from({ length: count }, (_, host) =>
        runProgram(`tsrun on n${host}`, hosts.tsrun(host, nproc, program, [output])),
      ),
    ),
  )
}
