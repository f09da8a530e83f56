import type { PortRange } from '@tsrun/core'
import type { Values } from './flags.ts'
import { integerFrom, readSetting, usageError } from './readers.ts'
import type { Settings } from './settings.ts'

/** How a rank's cores are chosen. `core` divides all cores among ranks, regardless of NUMA nodes. */
export type Binding = NonNullable<Values['numa-binding']> | 'core'

/** The cores and GPUs of this host, for `--nproc auto`, `gpu` and `cpu`. */
export interface Capacity {
  readonly cores: number
  readonly gpus: () => number
  /** Whether the backend that ranks load computes on GPUs. */
  readonly usesGpus: () => boolean
}

/**
 * The numbers of ranks and hosts, and where ranks run.
 *
 * @param isSaid - whether an option determines which host is node 0
 * @throws ERR_TSR_USAGE
 */
export function toPlacement(values: Values, settings: Settings, nproc: number, isSaid: boolean) {
  const { minNodes, nnodes } = values.nnodes
  const isElastic = minNodes < nnodes
  const nodeRank = nodeRankOf(values, settings, isSaid || isElastic)
  return {
    /** The number of ranks on this host. */
    nproc,
    /** The number of hosts; with a range, the maximum. */
    nnodes,
    /** The minimum number of hosts; less than `nnodes` if hosts may join and leave. */
    minNodes,
    /**
     * Undefined: the host of the endpoint is node 0, and other nodes are numbered by arrival. Numbers
     * change when hosts join or leave, except for node 0.
     */
    nodeRank: isElastic && nodeRank !== 0 ? undefined : nodeRank,
    role: values.role,
    virtualLocalRank: values['virtual-local-rank'],
    binding: bindingOf(values, settings),
    /** A network interface or an address; undefined: the interface that reaches the store. */
    iface: values.iface ?? values['local-addr'],
    portRange: portRangeOf(values, settings, nproc),
  }
}

/** The number of ranks on this host. @throws ERR_TSR_USAGE */
export function countRanks(
  { nproc }: Values,
  settings: Settings,
  { cores, gpus, usesGpus }: Capacity,
): number {
  if (nproc === 'auto') return (usesGpus() && gpus()) || cores
  if (nproc === 'cpu') return cores
  const found = nproc === 'gpu' ? gpus() : nproc
  if (found > 0) return found
  throw usageError(`${settings.nproc?.source ?? ''} is gpu, but this host has none (nvidia-smi -L)`)
}

/** @param isSaid - whether `is_host` or a range of `--nnodes` makes nodes be numbered by arrival */
function nodeRankOf(
  { nnodes: { nnodes }, 'rdzv-backend': backend }: Values,
  settings: Settings,
  isSaid: boolean,
): number | undefined {
  const given = settings['node-rank']
  if (given !== undefined) return readSetting(given, integerFrom(0, nnodes - 1))
  if (nnodes === 1) return 0
  const hasEndpoint = settings['rdzv-endpoint'] !== undefined
  if (backend !== 'static' && (hasEndpoint || backend === 'c10d' || isSaid)) return undefined
  throw usageError(
    `--node-rank is missing: give each of the ${nnodes} nodes its own number, from 0`,
  )
}

/** Reads `--bind` and `--numa-binding`, which exclude each other. */
function bindingOf(
  { bind, 'numa-binding': numa }: Values,
  settings: Settings,
): Binding | undefined {
  if (bind === undefined) return numa
  if (numa !== undefined) {
    const [one, other] = [settings.bind!, settings['numa-binding']!]
    throw usageError(`${one.source} and ${other.source} exclude each other`)
  }
  return bind === 'none' ? undefined : bind === 'numa' ? 'node' : bind
}

function portRangeOf(
  { 'port-range': range }: Values,
  settings: Settings,
  nproc: number,
): PortRange | undefined {
  if (range === undefined) return undefined
  const ports = range.last - range.first + 1
  if (ports >= nproc) return range
  const { source } = settings['port-range']!
  throw usageError(`${source} has ${ports} ports for ${nproc} ranks; each rank needs one`)
}
