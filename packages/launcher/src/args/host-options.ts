import { parsePortRange, type PortRange } from '@tsrun/core'
import type { FlagName } from './flags.ts'
import { readProtectionOptions, type ProtectionOptions } from './protection-options.ts'
import {
  read,
  readInteger,
  readSeconds,
  readSwitch,
  toInteger,
  usageError,
} from './read-setting.ts'
import type { Setting, Settings } from './settings.ts'

/** The port of the store with several hosts, as in torchrun. */
const STANDARD_PORT = 29_500
/** The same with `--rdzv-backend c10d`. */
const C10D_PORT = 29_400
const LARGEST_NNODES = 4096

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
export function readHosts(given: Settings, nproc: number): HostOptions {
  const settings = readSwitch(given, 'standalone') ? alone(given) : given
  const backend = readBackend(settings)
  const { minNodes, nnodes } = readNnodes(settings)
  const conf = readConf(settings)
  const isHost = conf.get('is_host')
  const isSaid = isHost && readSwitch({ 'rdzv-conf': isHost }, 'rdzv-conf')
  const nodeRank = readNodeRank(
    settings,
    nnodes,
    backend,
    isSaid !== undefined || minNodes < nnodes,
  )
  const isElastic = minNodes < nnodes
  return {
    ...{ nnodes, minNodes },
    lastCall: readLastCall(conf),
    // A number may change when hosts come and go; only that of node 0 stays.
    nodeRank: isElastic && nodeRank !== 0 ? undefined : nodeRank,
    isNodeZero: isSaid,
    rdzvId: readId(settings),
    ...readEndpoint(settings, nnodes, backend),
    rdzvTimeout: readMilliseconds(
      settings,
      'rdzv-timeout',
      conf.get('join_timeout') ?? conf.get('timeout'),
    ),
    hostTimeout: readMilliseconds(settings, 'host-timeout', silenceOf(conf)),
    tokenFile: settings['token-file']?.value,
    iface: (settings.iface ?? settings['local-addr'])?.value,
    portRange: readPortRange(settings, nproc),
    protection: readProtectionOptions(settings),
  }
}

/** What torchrun overrides with `--standalone`: everything about other hosts. */
function alone(settings: Settings): Settings {
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

type Backend = 'c10d' | 'static'

function readBackend(settings: Settings): Backend | undefined {
  const setting = settings['rdzv-backend']
  if (setting === undefined) return undefined
  if (setting.value.startsWith('etcd')) {
    throw usageError(
      `${setting.source} is ${setting.value}: use c10d, as hosts need no service beside the store of node 0`,
    )
  }
  return read(settings, 'rdzv-backend', 'c10d or static', (text) =>
    text === 'c10d' || text === 'static' ? text : undefined,
  )
}

/** `4`, or `2:4` for two to four. */
function readNnodes(settings: Settings): Pick<HostOptions, 'minNodes' | 'nnodes'> {
  const expected = `an integer from 1 to ${LARGEST_NNODES}, or a range as in 2:4`
  return read(settings, 'nnodes', expected, (text) => {
    const [least, most = least, ...others] = text.split(':')
    const minNodes = toInteger(least!, 1, LARGEST_NNODES)
    const nnodes = toInteger(most!, minNodes ?? 1, LARGEST_NNODES)
    if (minNodes === undefined || nnodes === undefined || others.length > 0) return undefined
    return { minNodes, nnodes }
  })
}

/** Milliseconds that torchrun calls the last call; here shorter, as hosts may join at any time. */
const LAST_CALL = 10_000

function readLastCall(conf: ReadonlyMap<string, Setting>): number {
  const setting = conf.get('last_call_timeout')
  if (setting === undefined) return LAST_CALL
  return read({ 'rdzv-conf': setting }, 'rdzv-conf', 'a number of seconds', readSeconds) * 1000
}

/** @param isSaid - whether `is_host` of `--rdzv-conf` says which host is node 0 */
function readNodeRank(
  settings: Settings,
  nnodes: number,
  backend: Backend | undefined,
  isSaid: boolean,
): number | undefined {
  if (settings['node-rank'] !== undefined) return readInteger(settings, 'node-rank', 0, nnodes - 1)
  if (nnodes === 1) return 0
  const hasEndpoint = settings['rdzv-endpoint'] !== undefined
  if (backend !== 'static' && (hasEndpoint || backend === 'c10d' || isSaid)) return undefined
  throw usageError(
    `--node-rank is missing: give each of the ${nnodes} nodes its own number, from 0`,
  )
}

function readId(settings: Settings): string | undefined {
  // torchrun's own default stands for no name.
  if (settings['rdzv-id'] === undefined || settings['rdzv-id'].value === 'none') return undefined
  return read(settings, 'rdzv-id', 'up to 100 letters, digits and . _ -', (text) =>
    /^[\w.-]{1,100}$/.test(text) ? text : undefined,
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

function readEndpoint(
  settings: Settings,
  nnodes: number,
  backend: Backend | undefined,
): Pick<HostOptions, 'masterAddr' | 'masterPort'> {
  const endpoint = settings['rdzv-endpoint']
  const standard = backend === 'c10d' ? C10D_PORT : STANDARD_PORT
  if (endpoint !== undefined && endpoint.value !== '') {
    return parseEndpoint(endpoint, nnodes, standard)
  }
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
  return { masterAddr, masterPort: masterPort === 0 && nnodes > 1 ? standard : masterPort }
}

/** `node0`, `node0:29500`, `10.0.0.1:29500`, `[fd00::1]:29500`. */
function parseEndpoint(
  { source, value }: Setting,
  nnodes: number,
  standard: number,
): Pick<HostOptions, 'masterAddr' | 'masterPort'> {
  const match = /^(?:\[([0-9a-f:.%]+)\]|([^\s:[\]/]+))(?::(\d{1,5}))?$/i.exec(value.trim())
  const host = match?.[1] ?? match?.[2]
  const port = match?.[3] === undefined ? standard : toInteger(match[3], 0, 65_535)
  if (host === undefined || port === undefined) {
    throw usageError(
      `${source} is ${JSON.stringify(value)}; expected HOST:PORT, for example node0:29500`,
    )
  }
  if (port === 0 && nnodes > 1)
    throw usageError(`${source} needs a port that all nodes know, not 0`)
  return { masterAddr: host, masterPort: port }
}

/** @param other - a setting of torchrun for the same, which counts where the flag has its default */
function readMilliseconds(
  settings: Settings,
  name: FlagName & ('rdzv-timeout' | 'host-timeout'),
  other: Setting | undefined,
): number {
  const isDefault = settings[name]?.source === 'default'
  const chosen = isDefault && other !== undefined ? { [name]: other } : settings
  return read(chosen, name, 'a number of seconds above 0, up to 86400', (text) => {
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
