// One rank: join-rank.mjs OUTPUT. Rank 0 writes when all ranks have joined, and what joining took.
import { readFileSync, writeFileSync } from 'node:fs'
import { initProcessGroup } from '@tsrun/distributed'

const [output] = process.argv.slice(2)
const start = performance.now()
const group = await initProcessGroup()
const { user, system } = process.cpuUsage()
await group.barrier()
const joined = Date.now()
const joiningMs = performance.now() - start
const cpuMs = await group.gatherObject((user + system) / 1000, 0)
if (group.rank === 0) {
  writeFileSync(output, JSON.stringify({ joined, joiningMs, cpuMs, launcher: readLauncher() }))
}
await group.destroy()

/** The CPU time and the peak memory of the launcher until now. */
function readLauncher() {
  const status = (/** @type {string} */ file) =>
    readFileSync(`/proc/${process.ppid}/${file}`, 'utf8')
  const stat = status('stat')
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  // Linux counts in units of 10 ms.
  const cpuMs = 10 * (Number(fields[11]) + Number(fields[12]))
  const [, kib] = /^VmHWM:\s+(\d+) kB$/m.exec(status('status')) ?? []
  return { cpuMs, peakMB: Math.round((1024 * Number(kib)) / 1e6) }
}
