import { parsePortRange, tsrError, type PortRange, type TsrError } from '@tsrun/core'
import type { FlagName } from './flags.ts'
import type { Setting, Settings } from './settings.ts'

/** The port of the store with several hosts, as in torchrun. */
const STANDARD_PORT = 29_500
const LARGEST_NNODES = 4096
const LARGEST_NPROC = 4096
const logFormats = ['pretty', 'json', 'raw'] as const
export type LogFormat = (typeof logFormats)[number]

/** The options about the hosts of a job. */
export interface HostOptions {
  readonly nnodes: number
  readonly nodeRank: number
  /** Where the store listens. */
  readonly masterAddr: string
  /** 0: any free port, on a single host. */
  readonly masterPort: number
  /** Milliseconds that the hosts wait for each other at the start. */
  readonly rdzvTimeout: number
  /** Milliseconds of silence after which a host counts as lost. */
  readonly hostTimeout: number
  readonly tokenFile: string | undefined
  /** A name or an address; undefined: the interface that leads to the store. */
  readonly iface: string | undefined
  readonly portRange: PortRange | undefined
}

/** The options of a job, checked and complete. */
export interface JobOptions extends HostOptions {
  /** The number of ranks on this host. */
  readonly nproc: number
  readonly maxRestarts: number
  /** Milliseconds between SIGTERM and SIGKILL. */
  readonly grace: number
  readonly logDir: string | undefined
  readonly logFormat: LogFormat
  /** The ranks whose output is shown; undefined: all. */
  readonly ranks: ReadonlySet<number> | undefined
  readonly summary: boolean
  readonly dryRun: boolean
  readonly script: string
  readonly scriptArguments: readonly string[]
}

/**
 * Checks the settings.
 *
 * @param cores - the number of ranks of `--nproc auto`
 * @throws ERR_TSR_USAGE
 */
export function toJobOptions(
  settings: Settings,
  command: readonly string[],
  cores: number,
): JobOptions {
  const [script, ...scriptArguments] = command
  if (script === undefined) throw usageError('No script given: tsrun [flags] script [arguments]')
  const nproc = readNproc(settings, cores)
  return {
    nproc,
    ...readHosts(settings, nproc),
    maxRestarts: readInteger(settings, 'max-restarts', 0, 1_000_000),
    grace: read(settings, 'grace', 'a number of seconds from 0 to 86400', readSeconds) * 1000,
    logDir: settings['log-dir']?.value,
    logFormat: read(settings, 'log-format', 'pretty, json or raw', (text) =>
      logFormats.find((format) => format === text),
    ),
    ranks: readRanks(settings),
    summary: readSwitch(settings, 'summary'),
    dryRun: readSwitch(settings, 'dry-run'),
    script,
    scriptArguments,
  }
}

function readNproc(settings: Settings, cores: number): number {
  const limit = `an integer from 1 to ${LARGEST_NPROC}, or auto`
  return read(settings, 'nproc', limit, (text) =>
    text === 'auto' ? cores : toInteger(text, 1, LARGEST_NPROC),
  )
}

function readRanks(settings: Settings): Set<number> | undefined {
  if (settings.ranks === undefined) return undefined
  return read(settings, 'ranks', 'ranks and ranges of ranks, for example 0,2-3', parseRankList)
}

/** Reads `0,2-3` as the set of 0, 2 and 3; undefined when it is no such list. */
export function parseRankList(text: string): Set<number> | undefined {
  const ranks = new Set<number>()
  for (const part of text.split(',')) {
    const match = /^\s*(\d{1,6})(?:-(\d{1,6}))?\s*$/.exec(part)
    if (match === null) return undefined
    const first = Number(match[1])
    const last = Number(match[2] ?? match[1])
    if (last < first) return undefined
    for (let rank = first; rank <= last; rank++) ranks.add(rank)
  }
  return ranks
}

/**
 * Checks `--ranks` once the size of the job is known.
 *
 * @throws ERR_TSR_USAGE
 */
export function checkRanks({ ranks }: JobOptions, worldSize: number): void {
  const highest = Math.max(...(ranks ?? []))
  if (highest < worldSize) return
  const range = worldSize === 1 ? 'only rank 0' : `ranks 0 to ${worldSize - 1}`
  throw usageError(`--ranks names rank ${highest}, but this job has ${range}`)
}

function readHosts(settings: Settings, nproc: number): HostOptions {
  const nnodes = readNnodes(settings)
  const nodeRank = readNodeRank(settings, nnodes)
  return {
    nnodes,
    nodeRank,
    ...readEndpoint(settings, nnodes),
    rdzvTimeout: readMilliseconds(settings, 'rdzv-timeout'),
    hostTimeout: readMilliseconds(settings, 'host-timeout'),
    tokenFile: settings['token-file']?.value,
    iface: settings.iface?.value,
    portRange: readPortRange(settings, nproc),
  }
}

function readNnodes(settings: Settings): number {
  return read(settings, 'nnodes', `an integer from 1 to ${LARGEST_NNODES}`, (text) => {
    const [least, most] = text.split(':')
    if (most !== undefined && most !== least) {
      throw usageError(
        `${settings.nnodes?.source ?? ''} is a range (${text}); tsrun takes one number`,
      )
    }
    return toInteger(least!, 1, LARGEST_NNODES)
  })
}

function readNodeRank(settings: Settings, nnodes: number): number {
  if (settings['node-rank'] !== undefined) return readInteger(settings, 'node-rank', 0, nnodes - 1)
  if (nnodes === 1) return 0
  throw usageError(
    `--node-rank is missing: give each of the ${nnodes} nodes its own number, from 0`,
  )
}

function readEndpoint(
  settings: Settings,
  nnodes: number,
): Pick<HostOptions, 'masterAddr' | 'masterPort'> {
  const endpoint = settings['rdzv-endpoint']
  if (endpoint !== undefined) return parseEndpoint(endpoint, nnodes)
  if (nnodes > 1 && settings['master-addr']?.source === 'default') {
    throw usageError(
      '--rdzv-endpoint is missing: the name or address of node 0, the same on all nodes',
    )
  }
  const masterAddr = read(
    settings,
    'master-addr',
    'a host name or address',
    (text) => text || undefined,
  )
  const masterPort = readInteger(settings, 'master-port', 0, 65_535)
  return { masterAddr, masterPort: masterPort === 0 && nnodes > 1 ? STANDARD_PORT : masterPort }
}

/** `node0`, `node0:29500`, `10.0.0.1:29500`, `[fd00::1]:29500`. */
function parseEndpoint(
  { source, value }: Setting,
  nnodes: number,
): Pick<HostOptions, 'masterAddr' | 'masterPort'> {
  const match = /^(?:\[([0-9a-f:.%]+)\]|([^\s:[\]/]+))(?::(\d{1,5}))?$/i.exec(value.trim())
  const host = match?.[1] ?? match?.[2]
  const port = match?.[3] === undefined ? STANDARD_PORT : toInteger(match[3], 0, 65_535)
  if (host === undefined || port === undefined) {
    throw usageError(
      `${source} is ${JSON.stringify(value)}; expected HOST:PORT, for example node0:29500`,
    )
  }
  if (port === 0 && nnodes > 1)
    throw usageError(`${source} needs a port that all nodes know, not 0`)
  return { masterAddr: host, masterPort: port }
}

function readMilliseconds(settings: Settings, name: 'rdzv-timeout' | 'host-timeout'): number {
  return read(settings, name, 'a number of seconds above 0, up to 86400', (text) => {
    const seconds = readSeconds(text) ?? 0
    return seconds > 0 ? seconds * 1000 : undefined
  })
}

function readPortRange(settings: Settings, nproc: number): PortRange | undefined {
  const setting = settings['port-range']
  if (setting === undefined) return undefined
  const range = read(settings, 'port-range', 'two ports, for example 29600-29699', parsePortRange)
  const ports = range.last - range.first + 1
  if (ports >= nproc) return range
  throw usageError(`${setting.source} has ${ports} ports for ${nproc} ranks; each rank needs one`)
}

function readInteger(settings: Settings, name: FlagName, lowest: number, highest: number): number {
  return read(settings, name, `an integer from ${lowest} to ${highest}`, (text) =>
    toInteger(text, lowest, highest),
  )
}

function readSwitch(settings: Settings, name: FlagName): boolean {
  return read(settings, name, 'true or false', (text) => {
    if (/^(true|1|yes|on)$/i.test(text)) return true
    return /^(false|0|no|off)$/i.test(text) ? false : undefined
  })
}

/** @param parse - returns undefined for a text that it does not accept */
function read<T>(
  settings: Settings,
  name: FlagName,
  expected: string,
  parse: (text: string) => T | undefined,
): T {
  const setting = settings[name] ?? { value: '', source: `--${name}` }
  const value = parse(setting.value.trim())
  if (value !== undefined) return value
  const { source } = setting
  throw usageError(`${source} is ${JSON.stringify(setting.value)}; expected ${expected}`)
}

function toInteger(text: string, lowest: number, highest: number): number | undefined {
  const value = /^\d+$/.test(text) ? Number(text) : NaN
  return value >= lowest && value <= highest ? value : undefined
}

function readSeconds(text: string): number | undefined {
  const value = /^(\d+|\d*\.\d+)s?$/.test(text) ? parseFloat(text) : NaN
  return value <= 86_400 ? value : undefined
}

/** @returns ERR_TSR_USAGE */
export function usageError(problem: string, cause?: unknown): TsrError {
  return tsrError('ERR_TSR_USAGE', { problem }, { cause })
}
