// What the processes of a soak use, and what is left of them.
import { readdirSync, readFileSync } from 'node:fs'

/**
 * What a process uses now; undefined once it has ended.
 *
 * @param {number} pid
 * @returns {{ age: number, mib: number, threads: number, descriptors: number, maps: number } | undefined}
 */
export function usageOf(pid) {
  const status = readText(`/proc/${pid}/status`)
  const of = (key) => Number(new RegExp(`^${key}:\\s+(\\d+)`, 'm').exec(status ?? '')?.[1])
  if (status === undefined || Number.isNaN(of('VmRSS'))) return undefined
  return {
    age: ageOf(pid),
    mib: of('VmRSS') / 1024,
    threads: of('Threads'),
    descriptors: listOf(`/proc/${pid}/fd`).length,
    maps: (readText(`/proc/${pid}/maps`) ?? '').split('\n').length,
  }
}

/** The seconds since a process was started. */
function ageOf(pid) {
  const stat = readText(`/proc/${pid}/stat`) ?? ''
  const ticks = Number(stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19])
  return Number(readText('/proc/uptime').split(' ')[0]) - ticks / 100
}

/** The processes that a process has started. */
export function childrenOf(pid) {
  const text = readText(`/proc/${pid}/task/${pid}/children`) ?? ''
  return text.trim().split(' ').filter(Boolean).map(Number)
}

/** The processes that have the variable of this soak, but this one. */
export function livingProcesses(folder) {
  return listOf('/proc').filter((pid) => {
    if (!/^\d+$/.test(pid) || Number(pid) === process.pid) return false
    const isDead = /^State:\s+[ZX]/m.test(readText(`/proc/${pid}/status`) ?? '')
    return !isDead && (readText(`/proc/${pid}/environ`) ?? '').includes(`TSRUN_SOAK=${folder}`)
  })
}

export function listOf(path, options = {}) {
  try {
    return readdirSync(path, options)
  } catch {
    return []
  }
}

function readText(path) {
  try {
    return readFileSync(path, 'latin1')
  } catch {
    return undefined
  }
}
