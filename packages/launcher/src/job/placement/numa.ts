import { join } from 'node:path'
import { allowedCores, isAvailable } from '@tsrun/native'
import type { Binding } from '../../args/job-options.ts'
import { usageError } from '../../args/readers.ts'
import { readSystemFile, type ReadSystemFile } from './limits.ts'

/**
 * The cores to which a rank is bound, out of those that this process may use. The ranks of a host are
 * spread over its NUMA nodes (sockets, last-level caches). Neighbouring ranks share a NUMA node,
 * because they exchange the most data.
 *
 * @returns `cores`: with `core` and `exclusive` a separate share for each rank, otherwise the same cores
 *   for all ranks of a node (socket, cache); `ranks`: how many ranks of this host share these cores
 */
export function coresOf(
  binding: Binding,
  localRank: number,
  localWorldSize: number,
  read: ReadSystemFile = readSystemFile,
  usable: readonly number[] = coresOfProcess(),
) {
  if (binding === 'core' && localWorldSize > usable.length) {
    const cores = usable.length === 1 ? '1 core' : `${usable.length} cores`
    throw usageError(
      `--bind core gives each of ${localWorldSize} ranks a core of its own, but tsrun may use ${cores} ` +
        `here: use at most --nproc ${usable.length}, or --bind none`,
    )
  }
  const parts = partsOf(binding, usable, read)
  const indices = Array.from({ length: localWorldSize }, (_, rank) =>
    Math.floor((rank * parts.length) / localWorldSize),
  )
  const index = indices[localRank]!
  const part = parts[index]!
  const ranks = indices.filter((other) => other === index).length
  if (binding !== 'exclusive' && binding !== 'core') return { cores: part, ranks }
  // The ranks of one NUMA node (socket, cache) are consecutive.
  const at = localRank - indices.indexOf(index)
  // With more ranks than cores, some ranks share a core.
  if (ranks > part.length) {
    const core = at % part.length
    return { cores: [part[core]!], ranks: Math.ceil((ranks - core) / part.length) }
  }
  // Keep the hardware threads of a core together if each rank can have a whole core.
  const whole = siblingsOf(part, read)
  const units = whole.length < ranks ? part.map((core) => [core]) : whole
  const bound = (rank: number): number => Math.floor((rank * units.length) / ranks)
  const cores = units.slice(bound(at), bound(at + 1)).flat()
  return { cores: cores.sort((a, b) => a - b), ranks: 1 }
}

/** The variables that tell a rank its cores, and how many ranks share them. */
export function coreEnvironment(
  binding: Binding,
  localRank: number,
  localWorldSize: number,
): Record<string, string> {
  const { cores, ranks } = coresOf(binding, localRank, localWorldSize)
  return { TSRUN_CORES: cores.join(), TSRUN_CORE_RANKS: String(ranks) }
}

/** The hardware threads of each core, in the order of the NUMA nodes and then of the first thread. */
function siblingsOf(part: readonly number[], read: ReadSystemFile): number[][] {
  const nodes = nodesByCore(read)
  const cores = groupBy(
    part,
    (thread) =>
      read(`/sys/devices/system/cpu/cpu${thread}/topology/thread_siblings_list`) ?? String(thread),
  )
  const nodeOf = (threads: readonly number[]): number => nodes.get(threads[0]!) ?? 0
  return cores.sort((a, b) => nodeOf(a) - nodeOf(b))
}

/** Groups the cores by NUMA node, socket or cache, in the order of the first core of each group. */
function partsOf(binding: Binding, usable: readonly number[], read: ReadSystemFile): number[][] {
  if (binding === 'core') return [[...usable]]
  const nodes = nodesByCore(read)
  return groupBy(usable, (core) => {
    const cpu = `/sys/devices/system/cpu/cpu${core}`
    if (binding === 'socket') return read(`${cpu}/topology/physical_package_id`)
    if (binding === 'core-complex') return read(`${cpu}/cache/index3/shared_cpu_list`)
    return nodes.get(core)
  })
}

function groupBy(cores: readonly number[], keyOf: (core: number) => unknown): number[][] {
  const groups = new Map<unknown, number[]>()
  for (const core of cores) {
    const key = keyOf(core)
    groups.set(key, [...(groups.get(key) ?? []), core])
  }
  return [...groups.values()]
}

function nodesByCore(read: ReadSystemFile): Map<number, number> {
  const nodes = new Map<number, number>()
  const folder = '/sys/devices/system/node'
  for (const index of parseCores(read(`${folder}/online`) ?? '')) {
    for (const core of parseCores(read(join(folder, `node${index}`, 'cpulist')) ?? '')) {
      nodes.set(core, index)
    }
  }
  return nodes
}

/** Parses `0-3,8` as 0, 1, 2, 3 and 8. */
function parseCores(list: string): number[] {
  return list.split(',').flatMap((part) => {
    const [, first, last = first] = /^(\d+)(?:-(\d+))?$/.exec(part.trim()) ?? []
    if (first === undefined) return []
    return Array.from({ length: Number(last) - Number(first) + 1 }, (_, i) => Number(first) + i)
  })
}

function coresOfProcess(): number[] {
  if (isAvailable().available) return allowedCores()
  throw usageError('--bind and --numa-binding need Linux and the package koffi')
}
