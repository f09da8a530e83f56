import { resolve } from 'node:path'
import { isTsrError, type PortRange, readProtection } from '@tsrun/core'
import type { Values } from './flags.ts'
import { toOutput } from './output-options.ts'
import { HIGHEST_PORT, inspectorFrom, integerFrom, readSetting, usageError } from './readers.ts'
import { readConf, toRendezvous, withoutOthers } from './rendezvous-options.ts'
import { readSettings, type Settings } from './settings.ts'

/** The options of a job, checked and complete. */
export type JobOptions = ReturnType<typeof toJobOptions>

/** @param command - the script and its arguments */
export function toJobOptions(given: Settings, command: readonly string[], capacity: Capacity) {
  const settings = withoutOthers(given)
  const values = readSettings(settings)
  const nproc = countRanks(values, settings, capacity)
  const conf = readConf(settings)
  return {
    program: toProgram(values, settings, command, nproc),
    placement: toPlacement(values, settings, nproc, conf.has('is_host')),
    rendezvous: toRendezvous(values, settings, conf),
    protection: toProtection(values),
    output: toOutput(values, settings),
    restart: {
      maxRestarts: values['max-restarts'],
      /** Milliseconds between SIGTERM and SIGKILL. */
      grace: values.grace,
      signals: values['signals-to-handle'],
      /** Milliseconds after which the job is ended. */
      jobTimeout: values['job-timeout'],
      onFailure: values['on-failure'],
    },
    dryRun: values['dry-run'],
    detach: values.detach,
  }
}

/** Checks that the ranks named by options exist, once the size of the job is known. */
export function checkRanks(
  { program, output }: Pick<JobOptions, 'program' | 'output'>,
  worldSize: number,
): void {
  const ranks = [...(output.ranks ?? [])]
  const highest = ranks.reduce((most, rank) => Math.max(most, rank), -Infinity)
  const named = { ranks: highest, 'inspect-rank': program.inspect?.rank, stdin: program.stdin }
  for (const [flag, rank] of Object.entries(named)) {
    if (typeof rank !== 'number' || rank < worldSize) continue
    const range = worldSize === 1 ? 'only rank 0' : `ranks 0 to ${worldSize - 1}`
    throw usageError(`--${flag} names rank ${rank}, but this job has ${range}`)
  }
}

export type ProgramOptions = ReturnType<typeof toProgram>

const INSPECTOR_PORT = 9229

/**
 * @param command - the script and its arguments
 * @param nproc - the number of ranks on this host
 */
export function toProgram(
  values: Values,
  settings: Settings,
  [script, ...scriptArguments]: readonly string[],
  nproc: number,
) {
  if (script === undefined)
    throw usageError(
      'No script given: tsrun [flags] script [arguments], or tsrun init for a new project',
    )
  const options = {
    /** Whether `script` is a file, a module of a package, or any program. */
    kind: kindOf(values),
    script,
    arguments: scriptArguments,
    nodeArguments: nodeArgumentsOf(values),
    inspect: inspectOf(values, settings, nproc),
    /** The profiles that each rank writes into the folder of its log files. */
    profiles: (['cpu', 'heap'] as const).filter((kind) => values[`${kind}-prof`]),
    chaos: values.chaos,
    /** The rank that gets the standard input of the launcher. */
    stdin: values.stdin,
  }
  if (options.kind === 'program') refuseForPrograms(values, settings)
  return options
}

function kindOf({ module, 'no-python': isProgram }: Values) {
  if (module && isProgram) throw usageError('--module and --no-python exclude each other')
  return module ? 'module' : isProgram ? 'program' : 'file'
}

function refuseForPrograms(values: Values, settings: Settings): void {
  const name = (['node-args', 'inspect', 'inspect-rank', 'cpu-prof', 'heap-prof'] as const).find(
    (each) => values[each] !== undefined && values[each] !== false,
  )
  if (name === undefined) return
  const { source } = settings[name]!
  throw usageError(`${source} is for ranks that run Node; with --no-python they run any program`)
}

function nodeArgumentsOf({ 'node-args': words = [] }: Values): readonly string[] {
  const other = words.find((word) => !word.startsWith('-'))
  // If the first word has no leading dash, Node would run it as the script.
  if (words[0] === other && other !== undefined) {
    throw usageError(`--node-args begins with ${other}, which is no option of Node`)
  }
  return words
}

function inspectOf({ 'inspect-rank': rank }: Values, { inspect }: Settings, nproc: number) {
  if (inspect === undefined && rank === undefined) return undefined
  const highest = rank === undefined ? HIGHEST_PORT + 1 - nproc : HIGHEST_PORT
  return {
    /** The port of the first rank of the host. Undefined: each rank takes any free port. */
    ...(inspect === undefined
      ? { host: '127.0.0.1', port: INSPECTOR_PORT }
      : readSetting(inspect, inspectorFrom(highest))),
    /** The rank that listens and waits for the debugger. Undefined: all ranks listen, and none waits. */
    rank,
  }
}

/** The policy that binds ranks to cores. `core` divides all cores among ranks, regardless of NUMA nodes. */
export type Binding = NonNullable<Values['numa-binding']> | 'core'

/** The cores and GPUs of this host, for `--nproc auto`, `gpu` and `cpu`. */
export interface Capacity {
  readonly cores: number
  readonly gpus: () => number
  /** Whether the backend that ranks load computes on GPUs. */
  readonly usesGpus: () => boolean
}

/** @param isSaid - true if an option determines which host is node 0 */
function toPlacement(values: Values, settings: Settings, nproc: number, isSaid: boolean) {
  const { minNodes, nnodes } = values.nnodes
  const isElastic = minNodes < nnodes
  const nodeRank = nodeRankOf(values, settings, isSaid || isElastic)
  return {
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

function countRanks(
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

/** @param isSaid - whether nodes are numbered by arrival, because of `is_host` or a range of `--nnodes` */
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

export function toProtection(values: Pick<Values, 'tls'> & Partial<Values>) {
  const files = {
    TSRUN_TLS_CERT: values['tls-cert'],
    TSRUN_TLS_KEY: values['tls-key'],
    TSRUN_TLS_CA: values['tls-ca'],
  }
  const given = Object.entries(files).filter((entry): entry is [string, string] => !!entry[1])
  /** The variables that pass these options to the ranks. */
  const environment: Record<string, string> = {
    // An empty value overrides the environment, as `0` does. A nested job treats empty as unset.
    TSRUN_TLS: values.tls ? '1' : '',
    ...Object.fromEntries(given.map(([name, file]) => [name, resolve(file)])),
  }
  try {
    const { protection, certificate } = readProtection(environment)
    return {
      protection,
      certificate,
      environment,
      tokenFile: values['token-file'],
    }
  } catch (cause) {
    if (!isTsrError(cause)) throw cause
    const { variable, expected } = cause.facts
    const flag = `--${String(variable).slice('TSRUN_'.length).toLowerCase().replaceAll('_', '-')}`
    throw usageError(`${flag} needs ${String(expected)}`, cause)
  }
}
