import { parsePortRange, type PortRange } from '@tsrun/core'
import { read, readInteger, readSeconds, toInteger, usage } from './reading.ts'
import type { Setting, Settings } from './settings.ts'

/** torchrun's port of the store. */
const STANDARD_PORT = 29_500
const LARGEST_NNODES = 4096

/** What a job needs to know about its hosts, checked and complete. */
export interface HostOptions {
  readonly nnodes: number
  readonly nodeRank: number
  /** Where the store listens. */
  readonly masterAddr: string
  /** 0: the kernel picks one, on a single host. */
  readonly masterPort: number
  /** Milliseconds that the hosts wait for each other. */
  readonly rdzvTimeout: number
  /** Milliseconds of silence after which a host is given up. */
  readonly hostTimeout: number
  readonly tokenFile: string | undefined
  /** Name or address; undefined: the interface that leads to the store. */
  readonly iface: string | undefined
  readonly portRange: PortRange | undefined
}

/** @throws ERR_TSR_USAGE */
export function readHosts(settings: Settings, nproc: number): HostOptions {
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
      throw usage(`${settings.nnodes?.source ?? ''} is a range (${text}); tsrun takes one number`)
    }
    return toInteger(least!, 1, LARGEST_NNODES)
  })
}

function readNodeRank(settings: Settings, nnodes: number): number {
  if (settings['node-rank'] !== undefined) return readInteger(settings, 'node-rank', 0, nnodes - 1)
  if (nnodes === 1) return 0
  throw usage(`--node-rank is missing: give each of the ${nnodes} nodes its own, from 0`)
}

function readEndpoint(
  settings: Settings,
  nnodes: number,
): Pick<HostOptions, 'masterAddr' | 'masterPort'> {
  const endpoint = settings['rdzv-endpoint']
  if (endpoint !== undefined) return parseEndpoint(endpoint, nnodes)
  if (nnodes > 1 && settings['master-addr']?.source === 'default') {
    throw usage('--rdzv-endpoint is missing: the name or address of node 0, the same on all nodes')
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
    throw usage(`${source} is ${JSON.stringify(value)}; expected HOST:PORT, as in node0:29500`)
  }
  if (port === 0 && nnodes > 1) throw usage(`${source} needs a port that all nodes know, not 0`)
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
  const range = read(settings, 'port-range', 'two ports, as in 29600-29699', parsePortRange)
  const ports = range.last - range.first + 1
  if (ports >= nproc) return range
  throw usage(`${setting.source} has ${ports} ports for ${nproc} ranks: each takes one`)
}
