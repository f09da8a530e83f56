import { flag } from '@tsrun/core'
import type { Values } from './flags.ts'
import { anyTime, hosts, readSetting, timeout, usageError, type Setting } from './readers.ts'
import type { Settings } from './settings.ts'

/** The port of the store with several hosts, as in torchrun. */
const STANDARD_PORT = 29_500
/** The port of the store with `--rdzv-backend c10d`. */
const C10D_PORT = 29_400

export type RendezvousOptions = ReturnType<typeof toRendezvous>

export function toRendezvous(
  values: Values,
  settings: Settings,
  conf: ReadonlyMap<string, Setting>,
) {
  const isHost = conf.get('is_host')
  const lastCall = conf.get('last_call_timeout')
  /** Reads torchrun's setting `other` if the flag is not set. */
  const timeoutOf = (name: 'rdzv-timeout' | 'host-timeout', other: Setting | undefined): number =>
    settings[name]?.source === 'default' && other !== undefined
      ? readSetting(other, timeout)
      : values[name]
  return {
    ...endpointOf(values, settings),
    /** Whether this host is node 0; undefined if no option decides. */
    isNodeZero: isHost && readSetting(isHost, flag),
    /** The name of the job, the same on all hosts. */
    rdzvId: values['rdzv-id'],
    /** Milliseconds that the hosts wait for each other at the start. */
    timeout: timeoutOf('rdzv-timeout', conf.get('join_timeout') ?? conf.get('timeout')),
    /** Milliseconds for which the job waits for more hosts once it has the minimum. */
    lastCall: lastCall === undefined ? LAST_CALL : readSetting(lastCall, anyTime),
    /** Milliseconds of silence after which a host counts as lost. */
    hostTimeout: timeoutOf('host-timeout', silenceOf(conf)),
  }
}

/** With `--standalone`, replaces all settings about other hosts, as torchrun does. */
export function withoutOthers(settings: Settings): Settings {
  const { standalone, nnodes } = settings
  const isAlone = standalone !== undefined && readSetting(standalone, flag)
  if (!isAlone && !isOnlyHere(settings)) return settings
  if (nnodes?.source === '--nnodes' && readSetting(nnodes, hosts).minNodes > 1) {
    throw usageError('--standalone is a job of this host alone, so --nnodes must be 1')
  }
  const source = '--standalone'
  const replaced = ['rdzv-endpoint', 'rdzv-backend', 'rdzv-id', 'node-rank']
  const left = Object.entries(settings).filter(([name]) => !replaced.includes(name))
  return {
    ...(Object.fromEntries(left) as Settings),
    nnodes: { value: '1', source },
    'master-addr': { value: '127.0.0.1', source },
    'master-port': { value: '0', source },
  }
}

/** True if no other host can join, for example with `--nnodes 1:2 --rdzv-endpoint localhost:0`. */
function isOnlyHere({ nnodes, 'rdzv-endpoint': endpoint }: Settings): boolean {
  const isLocal = /^(localhost|127\.[\d.]+|\[::1\]):0$/i.test(endpoint?.value ?? '')
  return isLocal && nnodes?.value.startsWith('1:') === true
}

/** Default of `last_call_timeout` in milliseconds, shorter than torchrun's: hosts may also join later. */
const LAST_CALL = 10_000

/** The settings of torchrun's rendezvous that tsrun accepts and ignores. */
const withoutEffect = [
  'close_timeout',
  'heartbeat_timeout',
  'read_timeout',
  'rank',
  'store_type',
  'use_libuv',
  'use_agent_store',
  'protocol',
  'ssl_cert',
  'ssl_cert_key',
  'ca_cert',
  'cacert',
  'local_addr',
]
const withEffect = [
  'timeout',
  'join_timeout',
  'keep_alive_interval',
  'keep_alive_max_attempt',
  'is_host',
  'last_call_timeout',
]

/** Parses `--rdzv-conf`. The source of each setting is, for example, `--rdzv-conf timeout`. */
export function readConf(settings: Settings): Map<string, Setting> {
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

/** Returns torchrun's time-out for a silent host in seconds; undefined without keep-alive settings. */
function silenceOf(conf: ReadonlyMap<string, Setting>): Setting | undefined {
  const [interval, attempts] = [conf.get('keep_alive_interval'), conf.get('keep_alive_max_attempt')]
  if (interval === undefined && attempts === undefined) return undefined
  const seconds = Number(interval?.value ?? 5) * Number(attempts?.value ?? 3)
  return { value: String(seconds), source: (interval ?? attempts)!.source }
}

/** Returns host and port of the store. Port 0 means any free port, and is valid only on a single host. */
function endpointOf(values: Values, settings: Settings) {
  const isAlone = values.nnodes.nnodes === 1
  const standard = values['rdzv-backend'] === 'c10d' ? C10D_PORT : STANDARD_PORT
  const endpoint = values['rdzv-endpoint']
  if (endpoint !== undefined) {
    const { host, port = standard } = endpoint
    if (port > 0 || isAlone) return { host, port }
    const { source } = settings['rdzv-endpoint']!
    throw usageError(`${source} needs a port that all nodes know, not 0`)
  }
  if (!isAlone && settings['master-addr']?.source === 'default') {
    throw usageError(
      '--rdzv-endpoint is missing: the name or address of node 0, the same on all nodes',
    )
  }
  const port = values['master-port']
  return { host: values['master-addr'], port: port > 0 || isAlone ? port : standard }
}
