import { flag, type PortRange } from '@tsrun/core'
import type { Values } from './flags.ts'
import { toProtection, type ProtectionOptions } from './protection-options.ts'
import { anyTime, integerFrom, readSetting, timeout, usageError, type Setting } from './readers.ts'
import type { Settings } from './settings.ts'

/** The port of the store with several hosts, as in torchrun. */
const STANDARD_PORT = 29_500
/** The same with `--rdzv-backend c10d`. */
const C10D_PORT = 29_400

/** The options about the hosts of a job. */
export interface HostOptions {
  /** The number of hosts, or the most of them. */
  readonly nnodes: number
  /** The fewest hosts with which the job runs; less than `nnodes` if hosts may join and leave. */
  readonly minNodes: number
  /** Milliseconds for which the job waits for more hosts once the fewest are there. */
  readonly lastCall: number
  /** Undefined: the host that the endpoint names is node 0, and the others are numbered as they arrive. */
  readonly nodeRank: number | undefined
  /** Whether this host is node 0, if an option says so. */
  readonly isNodeZero: boolean | undefined
  /** A name of the job that all hosts have to give. */
  readonly rdzvId: string | undefined
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
  readonly protection: ProtectionOptions
}

/** @throws ERR_TSR_USAGE */
export function toHosts(values: Values, settings: Settings, nproc: number): HostOptions {
  const { minNodes, nnodes } = values.nnodes
  const conf = readConf(settings)
  const isHost = conf.get('is_host')
  const isSaid = isHost && readSetting(isHost, flag)
  const lastCall = conf.get('last_call_timeout')
  const isElastic = minNodes < nnodes
  const nodeRank = nodeRankOf(values, settings, isSaid !== undefined || isElastic)
  /** A setting of torchrun for the same counts where the flag has its default. */
  const timeoutOf = (name: 'rdzv-timeout' | 'host-timeout', other: Setting | undefined): number =>
    settings[name]?.source === 'default' && other !== undefined
      ? readSetting(other, timeout)
      : values[name]
  return {
    ...{ nnodes, minNodes },
    lastCall: lastCall === undefined ? LAST_CALL : readSetting(lastCall, anyTime),
    // A number may change when hosts come and go; only that of node 0 stays.
    nodeRank: isElastic && nodeRank !== 0 ? undefined : nodeRank,
    isNodeZero: isSaid,
    rdzvId: values['rdzv-id'],
    ...endpointOf(values, settings),
    rdzvTimeout: timeoutOf('rdzv-timeout', conf.get('join_timeout') ?? conf.get('timeout')),
    hostTimeout: timeoutOf('host-timeout', silenceOf(conf)),
    tokenFile: values['token-file'],
    iface: values.iface ?? values['local-addr'],
    portRange: portRangeOf(values, settings, nproc),
    protection: toProtection(values),
  }
}

/** Without what torchrun overrides with `--standalone`: everything about other hosts. */
export function withoutOthers(settings: Settings): Settings {
  const { standalone } = settings
  if (standalone === undefined || !readSetting(standalone, flag)) return settings
  const ofSeveral = ['rdzv-endpoint', 'rdzv-backend', 'rdzv-id', 'node-rank']
  const own = Object.entries(settings).filter(([name]) => !ofSeveral.includes(name))
  const source = '--standalone'
  return {
    ...(Object.fromEntries(own) as Settings),
    nnodes: { value: '1', source },
    'master-addr': { value: '127.0.0.1', source },
    'master-port': { value: '0', source },
  }
}

/** Milliseconds that torchrun calls the last call; here shorter, as hosts may join at any time. */
const LAST_CALL = 10_000

/** @param isSaid - whether `is_host` of `--rdzv-conf`, or a range, says how hosts are numbered */
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

/** The settings of torchrun's rendezvous that there is nothing to set for. */
const withoutEffect = [
  ...['close_timeout', 'heartbeat_timeout', 'read_timeout'],
  ...['rank', 'store_type', 'use_libuv', 'use_agent_store', 'protocol', 'ssl_cert', 'ssl_cert_key'],
  ...['ca_cert', 'cacert', 'local_addr'],
]
const withEffect = [
  ...['timeout', 'join_timeout', 'keep_alive_interval', 'keep_alive_max_attempt', 'is_host'],
  'last_call_timeout',
]

/** The settings of `--rdzv-conf`, each with the source `--rdzv-conf timeout`. */
function readConf(settings: Settings): Map<string, Setting> {
  const conf = new Map<string, Setting>()
  const setting = settings['rdzv-conf']
  for (const pair of setting?.value.split(',') ?? []) {
    if (pair.trim() === '') continue
    const [, key, value] = /^\s*([\w-]+)\s*=\s*(.*?)\s*$/.exec(pair) ?? []
    const source = setting?.source ?? ''
    if (key === undefined || value === undefined) {
      throw usageError(`${source} has ${JSON.stringify(pair)}; expected KEY=VALUE,KEY=VALUE`)
    }
    if (key === 'store_type' && value !== 'tcp') {
      throw usageError(`${source} has store_type=${value}: the store of node 0 is reached over TCP`)
    }
    if (!withEffect.includes(key) && !withoutEffect.includes(key)) {
      throw usageError(`${source} has ${key}; expected one of ${withEffect.join(', ')}`)
    }
    conf.set(key, { value, source: `${source} ${key}` })
  }
  return conf
}

/** How long torchrun waits for a silent host; undefined without settings of it. */
function silenceOf(conf: ReadonlyMap<string, Setting>): Setting | undefined {
  const [interval, attempts] = [conf.get('keep_alive_interval'), conf.get('keep_alive_max_attempt')]
  if (interval === undefined && attempts === undefined) return undefined
  const seconds = Number(interval?.value ?? 5) * Number(attempts?.value ?? 3)
  return { value: String(seconds), source: (interval ?? attempts)!.source }
}

function endpointOf(
  values: Values,
  settings: Settings,
): Pick<HostOptions, 'masterAddr' | 'masterPort'> {
  const isAlone = values.nnodes.nnodes === 1
  const standard = values['rdzv-backend'] === 'c10d' ? C10D_PORT : STANDARD_PORT
  const endpoint = values['rdzv-endpoint']
  if (endpoint !== undefined) {
    const { host, port = standard } = endpoint
    if (port > 0 || isAlone) return { masterAddr: host, masterPort: port }
    const { source } = settings['rdzv-endpoint']!
    throw usageError(`${source} needs a port that all nodes know, not 0`)
  }
  if (!isAlone && settings['master-addr']?.source === 'default') {
    throw usageError(
      '--rdzv-endpoint is missing: the name or address of node 0, the same on all nodes',
    )
  }
  const port = values['master-port']
  return { masterAddr: values['master-addr'], masterPort: port > 0 || isAlone ? port : standard }
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
