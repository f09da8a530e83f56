import { availableParallelism } from 'node:os'
import {
  createLogger,
  parsePortRange,
  readRankEnvironment,
  refuseUnknown,
  shown,
  tsrError,
  type PortRange,
  type RankEnvironment,
} from '@tsrun/core'
import { isAvailable } from '@tsrun/native'
import type { Store } from '@tsrun/store'
import { readTuning, type Tuning } from '../../algorithms/tuning-file.ts'
import {
  readDiagnosis,
  type DiagnosisOptions,
  type DiagnosisSettings,
} from '../../diagnosis/settings.ts'
import type { StreamName } from '../../runners/open-transport.ts'
import { checkTimeout } from '../calls/arguments.ts'
import { chooseEngine, type EngineName } from './choose-engine.ts'

/** `shared-memory` means tcp between hosts. */
export type TransportName = 'shared-memory' | StreamName

export interface InitOptions extends DiagnosisOptions {
  /** Default: RANK. */
  readonly rank?: number
  /** Default: WORLD_SIZE, or 1. */
  readonly worldSize?: number
  /** Default: the store at MASTER_ADDR:MASTER_PORT. */
  readonly store?: Store
  /**
   * Default: TSRUN_TRANSPORT, or `auto`: where koffi works shared memory between the ranks of a host
   * that can share it, and tcp; else node. `shared-memory` insists on it within a host.
   * `mpi`, under mpirun or srun: libmpi runs the collectives and carries the messages.
   */
  readonly transport?: TransportName | 'auto'
  /**
   * Default: TSRUN_ENGINE, or `worker`: messages move while this thread computes. `inline` runs the
   * engine inside the waits of this thread: lower latency, no overlap. `auto`: TSRUN_ENGINE, or
   * `inline` where all ranks are on this host and it has no second core for each, else `worker`.
   */
  readonly engine?: EngineName | 'auto'
  /** Default time-out of operations, and of joining, in milliseconds; default 10 minutes. */
  readonly timeout?: number
  /** Gives up joining: ERR_TSR_ABORTED. Once the rank has joined it has no effect. */
  readonly signal?: AbortSignal
  /** Bytes of the arena and the engine's memory; default: TSRUN_ARENA (as in 512MiB), or 1 GiB. */
  readonly arena?: number
  /** Secret of the job; default: TSRUN_TOKEN. */
  readonly token?: string
  /**
   * Name of the network interface, or an own IP address, at which the peers reach this rank;
   * default: TSRUN_IFACE, or the interface that leads to the store.
   */
  readonly iface?: string
  /** Ports to listen at, for firewalls; default: TSRUN_PORT_RANGE (29600-29699), or any. */
  readonly ports?: PortRange
}

/** The options with every default filled in. */
export interface InitSettings {
  readonly environment: RankEnvironment | undefined
  readonly rank: number
  readonly worldSize: number
  readonly store: Store | undefined
  readonly transport: StreamName
  readonly sharedMemory: 'off' | 'auto' | 'required'
  readonly engine: EngineName
  readonly timeout: number
  readonly signal: AbortSignal | undefined
  readonly arena: number
  readonly token: string
  readonly iface: string | undefined
  readonly ports: PortRange | undefined
  readonly diagnosis: DiagnosisSettings
  /** Of the file that TSRUN_TUNING names. */
  readonly tuning: Tuning
}

const TEN_MINUTES = 600_000
const SMALLEST_ARENA = 2 * 1024 * 1024
const LARGEST_ARENA = 4 * 1024 ** 3

const KNOWN = Object.keys({
  rank: true,
  worldSize: true,
  store: true,
  transport: true,
  engine: true,
  timeout: true,
  signal: true,
  arena: true,
  token: true,
  iface: true,
  ports: true,
  stallWarning: true,
  debug: true,
} satisfies Record<keyof InitOptions, true>)

/** @throws ERR_TSR_ARGUMENT for options, transports and engines that there are not */
export function checkOptions(options: InitOptions): void {
  refuseUnknown(options, KNOWN)
  checkChoice('transport', options.transport, transports)
  checkChoice('engine', options.engine, engines)
}

function checkChoice(name: string, value: unknown, choices: readonly unknown[]): void {
  if (value === undefined || choices.includes(value)) return
  const expected = `one of ${choices.join(', ')}`
  throw tsrError('ERR_TSR_ARGUMENT', { name, value: shown(value), expected })
}

/** @throws ERR_TSR_ENVIRONMENT, ERR_TSR_ARGUMENT, ERR_TSR_TRANSPORT_UNAVAILABLE, ERR_TSR_TUNING */
export function resolveOptions(options: InitOptions): InitSettings {
  const environment = options.worldSize === undefined ? readRankEnvironment() : undefined
  const worldSize = options.worldSize ?? environment?.worldSize ?? 1
  const rank = options.rank ?? environment?.rank ?? 0
  if (!Number.isInteger(rank) || rank < 0 || rank >= worldSize) {
    const expected = `an integer from 0 to ${worldSize - 1}`
    throw tsrError('ERR_TSR_ARGUMENT', { name: 'rank', value: rank, expected })
  }
  const wanted = wantedTransport(options)
  const transport = chooseStream(wanted, worldSize)
  const wantedEngine = engineWanted(options)
  const engine =
    wantedEngine === 'auto'
      ? chooseEngine({ environment, transport, cores: availableParallelism() })
      : wantedEngine
  if (engine === 'inline' && transport === 'node' && worldSize > 1) {
    const reason = 'the inline engine needs a transport that can block, and node:net cannot'
    throw tsrError('ERR_TSR_TRANSPORT_UNAVAILABLE', { transport, reason })
  }
  return {
    environment,
    rank,
    worldSize,
    store: options.store,
    transport,
    sharedMemory: transport === 'node' ? 'off' : sharingOf[wanted],
    engine,
    timeout: checkTimeout(options.timeout ?? TEN_MINUTES),
    signal: options.signal,
    arena: checkArena(options.arena ?? parseBytes(process.env['TSRUN_ARENA'] ?? '1GiB')),
    token: options.token ?? environment?.token ?? process.env['TSRUN_TOKEN'] ?? '',
    iface: options.iface ?? nonEmpty(process.env['TSRUN_IFACE']),
    ports: options.ports ?? readPortRange(process.env['TSRUN_PORT_RANGE']),
    diagnosis: readDiagnosis(options, process.env),
    tuning: readTuning(process.env['TSRUN_TUNING']),
  }
}

/** @throws ERR_TSR_ENVIRONMENT */
function engineWanted({ engine }: InitOptions): EngineName | 'auto' {
  if (engine === 'worker' || engine === 'inline') return engine
  const fallback = engine ?? 'worker'
  return choice('TSRUN_ENGINE', engines) ?? fallback
}

/** What the caller or the environment asks for. @throws ERR_TSR_ENVIRONMENT */
export function wantedTransport({ transport }: InitOptions): TransportName | 'auto' {
  return transport ?? choice('TSRUN_TRANSPORT', transports) ?? 'auto'
}

const engines = ['worker', 'inline', 'auto'] as const
const transports = ['auto', 'shared-memory', 'tcp', 'node', 'mpi'] as const

const sharingOf = {
  auto: 'auto',
  'shared-memory': 'required',
  tcp: 'off',
  node: 'off',
  mpi: 'off',
} as const

function chooseStream(wanted: TransportName | 'auto', worldSize: number): StreamName {
  if (wanted === 'shared-memory') return 'tcp'
  if (wanted !== 'auto') return wanted
  const native = isAvailable()
  if (native.available) return 'tcp'
  if (worldSize > 1) {
    const { reason } = native
    createLogger('distributed').warn({ reason }, 'no native sockets: the transport is node')
  }
  return 'node'
}

function choice<T extends string>(variable: string, choices: readonly T[]): T | undefined {
  const value = process.env[variable]
  if (value === undefined || value === '') return undefined
  const found = choices.find((known) => known === value)
  if (found !== undefined) return found
  const expected = `one of ${choices.join(', ')}`
  throw tsrError('ERR_TSR_ENVIRONMENT', { variable, value: shown(value), expected })
}

function nonEmpty(text: string | undefined): string | undefined {
  return text === '' ? undefined : text
}

function readPortRange(text: string | undefined): PortRange | undefined {
  if (text === undefined || text === '') return undefined
  const range = parsePortRange(text)
  if (range !== undefined) return range
  const expected = 'two ports, as in 29600-29699'
  throw tsrError('ERR_TSR_ENVIRONMENT', { variable: 'TSRUN_PORT_RANGE', value: text, expected })
}

function parseBytes(text: string): number {
  const match = /^(\d+(?:\.\d+)?)\s*([KMG]iB)?$/.exec(text)
  if (match === null) {
    const expected = 'bytes, as in 512MiB or 2GiB'
    throw tsrError('ERR_TSR_ENVIRONMENT', { variable: 'TSRUN_ARENA', value: text, expected })
  }
  const power = ['KiB', 'MiB', 'GiB'].indexOf(match[2] ?? '') + 1
  return Number(match[1]) * 1024 ** power
}

function checkArena(bytes: number): number {
  if (!(bytes >= SMALLEST_ARENA && bytes < LARGEST_ARENA)) {
    const expected = 'from 2 MiB to less than 4 GiB, in bytes'
    throw tsrError('ERR_TSR_ARGUMENT', { name: 'arena', value: bytes, expected })
  }
  return bytes
}
