import { availableParallelism } from 'node:os'
import {
  anything,
  choice,
  count,
  createLogger,
  declareOptions,
  flag,
  having,
  isStrongToken,
  launchedEnvironment,
  parsePortRange,
  positive,
  readCoreRanks,
  readProtection,
  readRankEnvironment,
  readVariable,
  takeToken,
  text,
  TOKEN_EXPECTED,
  tsrError,
  where,
  written,
  type ProtectionSettings,
  type RankEnvironment,
  type Rules,
} from '@tsrun/core'
import { addressSpaceLimit, isAvailable } from '@tsrun/native'
import type { Store } from '@tsrun/store'
import { readTuning } from './tuning-file.ts'
import { readDiagnosis } from '../../diagnosis/settings.ts'
import type { StreamName } from '../../runners/open-transport.ts'

/** `shared-memory` uses tcp for ranks of other hosts. */
export type TransportName = 'shared-memory' | WorldTransport

/** `fake` connects no ranks. */
type WorldTransport = StreamName | 'fake'

export type EngineName = 'worker' | 'inline'

/** Options of `initProcessGroup`. */
export interface InitOptions {
  /** Rank of this process in the world. Default: RANK, or the variable of srun or mpirun. */
  readonly rank?: number
  /** Number of ranks in the world. Default: WORLD_SIZE, or the variable of srun or mpirun, or 1. */
  readonly worldSize?: number
  /** The rendezvous store. Default: the store at MASTER_ADDR:MASTER_PORT. */
  readonly store?: Store
  /**
   * How ranks exchange data. Default: TSRUN_TRANSPORT, or `auto`.
   *
   * - `auto` uses shared memory within a host if possible, and tcp otherwise. Without koffi it uses
   *   `node`.
   * - `shared-memory` fails if ranks of one host cannot share memory.
   * - `mpi` needs `@tsrun/mpi`, and mpirun or srun. libmpi runs the collectives and sends the
   *   messages.
   * - `fake` is for stepping through one rank of a world without the others, like torch's backend
   *   `fake`. Every operation completes at once, as if each other rank had passed the same values:
   *   a sum is `size` times the input, and a gather is `size` copies of it. In an all-to-all, each
   *   rank sends the slice that this rank sends to itself. A broadcast leaves the buffer as it is. A
   *   receive, and a scatter from another rank, give zeros, or undefined for objects. A send is
   *   dropped.
   */
  readonly transport?: TransportName | 'auto'
  /**
   * The thread of the engine. Default: TSRUN_ENGINE, or `worker`, or `inline` if a host has eight
   * or more ranks for each core.
   *
   * - `worker` moves messages while this thread computes.
   * - `inline` runs the engine while this thread waits. The latency is lower, but communication
   * does not overlap with computation.
   * - `auto` means TSRUN_ENGINE. Without that variable, `auto` means `inline` on a job of one host with
   * fewer than two cores for each rank, and `worker` otherwise.
   */
  readonly engine?: EngineName | 'auto'
  /** Default time-out of operations, and of joining, in milliseconds. Default: 10 minutes. */
  readonly timeout?: number
  /** Stops joining with ERR_TSR_ABORTED. It has no effect once the rank has joined. */
  readonly signal?: AbortSignal
  /**
   * Bytes of the arena and the engine's memory together. Default: TSRUN_ARENA (for example 512MiB),
   * or almost 4 GiB: 1 GiB on Windows, and less if `ulimit -v` limits the address space. Only the
   * used part takes memory.
   */
  readonly arena?: number
  /** Secret of the job. Default: TSRUN_TOKEN. */
  readonly token?: string
  /**
   * Encrypts the traffic with the store and between ranks that share no memory. All ranks must pass
   * the same value. Default: TSRUN_TLS.
   */
  readonly tls?: boolean
}

/** How a process joins a generation. */
export interface Joining {
  /** The address of this host from which the store was reached. */
  readonly from: string | undefined
  readonly generation: number
  /** The view of the store that holds the keys of this generation. */
  readonly store: Store
  /** Milliseconds that joining may take. */
  readonly timeout: number
  readonly signal: AbortSignal | undefined
  /**
   * Identifies this process in this generation. It is the value of the key that `joinedKey`
   * returns.
   */
  readonly incarnation: string
}

/** The options with every default filled in. */
export type InitSettings = ReturnType<typeof completeOptions>

const TEN_MINUTES = 600_000
const SMALLEST_ARENA = 2 * 1024 * 1024
const LARGEST_ARENA = 4 * 1024 ** 3
const LEAST_DEFAULT_ARENA = 64 * 1024 * 1024

const engineRule = choice('worker', 'inline', 'auto').optional()
const transportRule = choice('auto', 'shared-memory', 'tcp', 'node', 'mpi', 'fake').optional()
const portsRule = written('two ports, as in 29600-29699', parsePortRange).optional()
const bytesRule = written('bytes, as in 512MiB or 2GiB', parseBytes).optional()

const arenaRule = where<number>(
  (bytes) => typeof bytes === 'number' && bytes >= SMALLEST_ARENA && bytes < LARGEST_ARENA,
  'from 2 MiB to less than 4 GiB, in bytes',
)

/** The checked options of a caller. The environment supplies each undefined option. */
export type GivenOptions = {
  readonly [Name in keyof InitOptions]-?: InitOptions[Name] | undefined
}

/** @throws ERR_TSR_ARGUMENT */
export const readOptions: (options: InitOptions) => GivenOptions = declareOptions({
  rank: count().optional(),
  worldSize: count({ from: 1 }).optional(),
  store: having<Store>(['get', 'multiGet', 'set', 'wait'], 'a store').optional(),
  transport: transportRule,
  engine: engineRule,
  timeout: positive('milliseconds above 0').optional(),
  signal: anything<AbortSignal>(),
  arena: arenaRule.optional(),
  token: text
    .refine((token) => token === '' || isStrongToken(token), TOKEN_EXPECTED)
    .secret()
    .optional(),
  tls: flag.optional(),
} satisfies Rules<GivenOptions>)

/** @throws ERR_TSR_ENVIRONMENT, ERR_TSR_ARGUMENT, ERR_TSR_TRANSPORT_UNAVAILABLE, ERR_TSR_TUNING */
export function completeOptions(options: GivenOptions) {
  const environment = options.worldSize === undefined ? environmentOfRank() : undefined
  const worldSize = options.worldSize ?? environment?.worldSize ?? 1
  const rank = count({ to: worldSize - 1 }).check('rank', options.rank ?? environment?.rank ?? 0)
  const wanted = wantedTransport(options)
  const transport = chooseStream(wanted, worldSize)
  const wantedEngine = chooseWanted(options)
  const cores = availableParallelism()
  const context = { environment, transport, cores, coreRanks: readCoreRanks() }
  const engine =
    wantedEngine === 'auto' || wantedEngine === undefined
      ? chooseEngine(context, wantedEngine)
      : wantedEngine
  if (engine === 'inline' && transport === 'node' && worldSize > 1) {
    const reason = 'the inline engine needs a transport that can block, and node:net cannot'
    throw tsrError('ERR_TSR_TRANSPORT_UNAVAILABLE', { transport, reason })
  }
  const { env } = process
  const token = options.token ?? tokenOf(environment)
  const protection = protectionOf(options)
  if (worldSize > 1) checkProtection(protection, transport, token)
  return {
    environment,
    rank,
    worldSize,
    store: options.store,
    transport,
    sharedMemory: transport === 'node' ? 'off' : sharingOf[wanted],
    engine,
    timeout: options.timeout ?? TEN_MINUTES,
    signal: options.signal,
    arena: arenaRule.check(
      'arena',
      options.arena ??
        readVariable('TSRUN_ARENA', bytesRule) ??
        defaultArena(environment?.localWorldSize ?? worldSize),
    ),
    token,
    protection,
    /** The network interface, or an address of this host, at which other ranks reach this rank. */
    iface: readVariable('TSRUN_IFACE', text.optional()),
    /** The ports to listen on, for firewalls; undefined: any free port. */
    ports: readVariable('TSRUN_PORT_RANGE', portsRule),
    diagnosis: readDiagnosis(env),
    /** The tuning table, from the file that TSRUN_TUNING names. */
    tuning: readTuning(env['TSRUN_TUNING']),
  }
}

/**
 * Reads the environment of this rank. If srun or mpirun started this rank without tsrun, derives
 * torchrun's variables and sets them, so that other code can read RANK.
 */
function environmentOfRank(): RankEnvironment | undefined {
  Object.assign(process.env, launchedEnvironment(process.env))
  return readRankEnvironment()
}

/** @throws ERR_TSR_ENVIRONMENT for a guessable token */
function tokenOf(environment: RankEnvironment | undefined): string {
  const token = environment?.token ?? takeToken() ?? ''
  if (token === '' || isStrongToken(token)) return token
  const value = `a text of ${token.length}`
  throw tsrError('ERR_TSR_ENVIRONMENT', {
    variable: 'TSRUN_TOKEN',
    value,
    expected: TOKEN_EXPECTED,
  })
}

/** @throws ERR_TSR_ENVIRONMENT */
function protectionOf({ tls }: GivenOptions): ProtectionSettings {
  if (tls === false) return { protection: 'none', certificate: undefined }
  return readProtection({ ...process.env, ...(tls === true && { TSRUN_TLS: '1' }) })
}

/** @throws ERR_TSR_TRANSPORT_UNAVAILABLE, ERR_TSR_ENVIRONMENT */
function checkProtection(
  { protection }: ProtectionSettings,
  transport: WorldTransport,
  token: string,
): void {
  if (protection === 'none') return
  if (transport === 'mpi') {
    const reason = 'libmpi carries its messages, which tls does not reach'
    throw tsrError('ERR_TSR_TRANSPORT_UNAVAILABLE', { transport, reason })
  }
  if (token !== '') return
  const expected = `${TOKEN_EXPECTED}, from which the keys of tls come`
  throw tsrError('ERR_TSR_ENVIRONMENT', { variable: 'TSRUN_TOKEN', value: 'not set', expected })
}

/**
 * Returns the transport that the caller or the environment asks for.
 * @throws ERR_TSR_ENVIRONMENT
 */
export function wantedTransport({ transport }: GivenOptions): TransportName | 'auto' {
  return transport ?? readVariable('TSRUN_TRANSPORT', transportRule) ?? 'auto'
}

/** @throws ERR_TSR_ENVIRONMENT */
function chooseWanted({ engine }: GivenOptions): EngineName | 'auto' | undefined {
  if (engine === 'worker' || engine === 'inline') return engine
  return readVariable('TSRUN_ENGINE', engineRule) ?? engine
}

/** The facts from which the engine is chosen. */
export interface EngineContext {
  readonly environment: Pick<RankEnvironment, 'worldSize' | 'localWorldSize'> | undefined
  readonly transport: WorldTransport
  /** Number of processor cores that this process may use. */
  readonly cores: number
  /** Number of ranks that share these cores; undefined: all ranks of this host. */
  readonly coreRanks?: number | undefined
}

/**
 * With this many ranks per core or more, worker engines only cost time, because communication and
 * computation cannot overlap.
 */
const CROWD = 8

/**
 * Chooses the engine. If `wanted` is undefined, `inline` is chosen only with CROWD or more ranks
 * per core. For `auto`, `inline` is also chosen if all ranks are on this host and it has fewer than
 * two cores for each rank. An engine thread would then compete with ranks that compute.
 */
export function chooseEngine(context: EngineContext, wanted: 'auto' | undefined): EngineName {
  const { environment, transport, cores, coreRanks } = context
  if (environment === undefined || transport !== 'tcp') return 'worker'
  const { worldSize, localWorldSize } = environment
  const ranks = coreRanks ?? localWorldSize
  if (ranks >= CROWD * cores) return 'inline'
  if (wanted === undefined) return 'worker'
  const isOneHost = localWorldSize === worldSize
  return isOneHost && cores < 2 * ranks ? 'inline' : 'worker'
}

const sharingOf = {
  auto: 'auto',
  'shared-memory': 'required',
  tcp: 'off',
  node: 'off',
  mpi: 'off',
  fake: 'off',
} as const

function chooseStream(wanted: TransportName | 'auto', worldSize: number): WorldTransport {
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

/**
 * Returns the bytes of the arena of each of `ranks` ranks of this host. Address space costs nothing,
 * except on Windows, which counts it as memory. Under `ulimit -v`, the arenas take a quarter of the
 * address space, because every rank maps all of them.
 */
function defaultArena(ranks: number): number {
  if (process.platform === 'win32') return 1024 ** 3
  const limit = isAvailable().available ? addressSpaceLimit() : Infinity
  return Math.min(LARGEST_ARENA - 1, Math.max(LEAST_DEFAULT_ARENA, limit / 4 / ranks))
}

function parseBytes(size: string): number | undefined {
  const [, digits, unit = ''] = /^(\d+(?:\.\d+)?)\s*([KMG]iB)?$/.exec(size) ?? []
  if (digits === undefined) return undefined
  return Number(digits) * 1024 ** (['KiB', 'MiB', 'GiB'].indexOf(unit) + 1)
}
