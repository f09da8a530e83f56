import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { allowedCores, isAvailable } from '@tsrun/native'
import type { NumaBinding } from '../args/job-options.ts'

/** Reads a file of /sys; undefined where there is none. */
export type ReadSystemFile = (path: string) => string | undefined

/**
 * The cores to which a rank is bound, of those that this process may use. The ranks of a host are spread
 * over its NUMA nodes (sockets, last-level caches): neighbours share one, as neighbours exchange most.
 *
 * @returns the same for each rank of a node (socket, cache), but with `exclusive` a share of its own
 */
export function coresOf(
  binding: NumaBinding,
  localRank: number,
  localWorldSize: number,
  read: ReadSystemFile = readSystemFile,
  usable: readonly number[] = usableCores(),
): number[] {
  const parts = partsOf(binding, usable, read)
  const index = Math.floor((localRank * parts.length) / localWorldSize)
  const part = parts[index]!
  if (binding !== 'exclusive') return part
  const ranks = Array.from({ length: localWorldSize }, (_, rank) => rank).filter(
    (rank) => Math.floor((rank * parts.length) / localWorldSize) === index,
  )
  const at = ranks.indexOf(localRank)
  const share = Math.floor(part.length / ranks.length)
  // With more ranks than cores, some share one.
  if (share === 0) return [part[at % part.length]!]
  return part.slice(at * share, at === ranks.length - 1 ? undefined : (at + 1) * share)
}

/** The cores that belong together, in the order of the first core of each part. */
function partsOf(
  binding: NumaBinding,
  usable: readonly number[],
  read: ReadSystemFile,
): number[][] {
  const parts = new Map<string, number[]>()
  const nodes = nodesByCore(read)
  for (const core of usable) {
    const cpu = `/sys/devices/system/cpu/cpu${core}`
    const key =
      binding === 'socket'
        ? read(`${cpu}/topology/physical_package_id`)
        : binding === 'core-complex'
          ? read(`${cpu}/cache/index3/shared_cpu_list`)
          : nodes.get(core)
    const part = parts.get(key ?? '') ?? []
    parts.set(key ?? '', [...part, core])
  }
  return [...parts.values()]
}

/** The NUMA node of each core. */
function nodesByCore(read: ReadSystemFile): Map<number, string> {
  const nodes = new Map<number, string>()
  const folder = '/sys/devices/system/node'
  for (const index of parseCores(read(`${folder}/online`) ?? '')) {
    for (const core of parseCores(read(join(folder, `node${index}`, 'cpulist')) ?? '')) {
      nodes.set(core, String(index))
    }
  }
  return nodes
}

/** `0-3,8` as 0, 1, 2, 3 and 8. */
function parseCores(list: string): number[] {
  return list.split(',').flatMap((part) => {
    const [, first, last = first] = /^(\d+)(?:-(\d+))?$/.exec(part.trim()) ?? []
    if (first === undefined) return []
    return Array.from({ length: Number(last) - Number(first) + 1 }, (_, i) => Number(first) + i)
  })
}

function usableCores(): number[] {
  if (isAvailable().available) return allowedCores()
  const names = readdirSync('/sys/devices/system/cpu').filter((name) => /^cpu\d+$/.test(name))
  return names.map((name) => Number(name.slice(3))).sort((a, b) => a - b)
}

function readSystemFile(path: string): string | undefined {
  try {
    return readFileSync(path, 'utf8').trim()
  } catch {
    return undefined
  }
}
