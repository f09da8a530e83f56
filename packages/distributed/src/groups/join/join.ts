import { isIP } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import {
  argumentError,
  choice,
  createLogger,
  Deadline,
  readLogLevel,
  readVariable,
  tsrError,
  type RankEnvironment,
} from '@tsrun/core'
import {
  connectStore,
  awaitListenAddress,
  isLoopback,
  memoryStore,
  nameEndpoint,
  startStoreServer,
  storeTlsOf,
  type StoreServer,
  type StoreServerOptions,
} from '@tsrun/store'
import { loadPlugIn, type Rendezvous } from '../../transports/plug-in.ts'
import type { EngineProcessGroup } from '../group.ts'
import { addressForPeers } from './endpoints.ts'
import { joinGeneration, type Joined } from './generations.ts'
import {
  completeOptions,
  readOptions,
  wantedTransport,
  type InitOptions,
  type InitSettings,
} from './options.ts'

/** State that outlives the worlds of this process. */
export interface Past extends Joined {
  /** The store that rank 0 hosts without a launcher. It stays open while other ranks need it. */
  server?: StoreServer
}

/** How many milliseconds before the time-out to stop resolving a host name. */
const LAST_LOOK = 1000
/** Milliseconds for which rank 0 keeps the store open for others before it leaves. */
const LEAVE_TOGETHER = 3000

/**
 * Joins the job that the environment describes, or else makes a world of one rank.
 *
 * @throws ERR_TSR_ARGUMENT, and the errors of `initProcessGroup`
 */
export async function joinWorld(
  options: InitOptions,
  past: Past = { departures: new Set() },
): Promise<EngineProcessGroup> {
  readLogLevel()
  readVariable('TSRUN_NATIVE', choice('on', 'off').optional())
  const given = readOptions(options)
  const wanted = wantedTransport(given)
  const job = wanted === 'mpi' ? await (await loadPlugIn(wanted)).join(options) : undefined
  const settings = completeOptions({ ...given, ...job?.place })
  const rendezvous = job ?? (await openRendezvous(settings, past))
  try {
    return await joinGeneration(settings, rendezvous, past)
  } catch (error) {
    // Close the connections, so that the other ranks do not wait for this rank.
    await past.server?.close()
    await rendezvous.close()
    throw error
  }
}

/** Leaves the world when the script of rank 0 ends. The store stays open while other ranks need it. */
function leaveBeforeExit(past: Past): void {
  process.on('beforeExit', (code) => {
    const world = past.group?.world
    if (code === 0 && world?.hasEnded === false) void world.leave()
  })
}

async function openRendezvous(settings: InitSettings, past: Past): Promise<Rendezvous> {
  const { environment, worldSize, rank, token, timeout, store, signal } = settings
  const isFake = settings.transport === 'fake'
  if (store !== undefined) return { store, isOwn: false, close: () => Promise.resolve() }
  if (worldSize === 1 || isFake || environment === undefined) {
    if (worldSize > 1 && !isFake) {
      throw argumentError('worldSize', worldSize, 'also a store, for a world of more than one rank')
    }
    const alone = memoryStore()
    return { store: alone, isOwn: true, close: () => alone.close() }
  }
  if (token === '' && process.env['TSRUN_RUN_ID'] !== undefined) throw inherited(rank)
  const { masterAddr: host, masterPort: port } = environment
  // Without a launcher, rank 0 hosts the store, like torch's env:// rendezvous.
  const isHost = rank === 0 && process.env['TSRUN_RUN_ID'] === undefined
  const at = await awaitName(settings, environment, isHost)
  checkToken(token, host, await addressForPeers(environment))
  const tls = storeTlsOf(settings.protection)
  const common = { port, token, tls }
  const server = isHost ? await hostStore(past, { host: at, ...common }) : undefined
  const connecting = connectStore({ ...common, host, timeout, signal })
  const client = await connecting.catch(async (error: unknown) => {
    await server?.close()
    throw error
  })
  return {
    store: client,
    from: client.localAddress,
    isOwn: true,
    close: async () => {
      await client.close()
      const left = server?.closeAfterClients()
      await Promise.race([left, pause(LEAVE_TOGETHER, undefined, { ref: false })])
    },
  }
}

/** Starts the store, or reuses an open one, which other ranks may already use. */
async function hostStore(past: Past, options: StoreServerOptions): Promise<StoreServer> {
  const { server } = past
  const isOpen = server?.inspect().isOpen === true && server.endpoint.port === options.port
  past.server = isOpen ? server : await startStoreServer(options)
  past.server.unref()
  if (server === undefined) leaveBeforeExit(past)
  return past.server
}

/**
 * Waits until MASTER_ADDR resolves. On rank 0, it must resolve to this host. The DNS entry of a new
 * host may appear late.
 *
 * @returns the address to listen at
 * @throws ERR_TSR_STORE_LISTEN, ERR_TSR_STORE_UNREACHABLE, ERR_TSR_ABORTED
 */
async function awaitName(
  { timeout, signal }: InitSettings,
  { masterAddr: host, masterPort: port }: RankEnvironment,
  isHost: boolean,
): Promise<string> {
  if (!isHost && isIP(host) !== 0) return host
  const deadline = Deadline.after(timeout)
  const endpoint = nameEndpoint(host, port)
  const what = `looking for the address of ${endpoint}`
  let tries = 0
  const onMissing = (reason: string): void => {
    if (isIP(host) !== 0 || deadline.remaining() <= LAST_LOOK) {
      throw tsrError(isHost ? 'ERR_TSR_STORE_LISTEN' : 'ERR_TSR_STORE_UNREACHABLE', {
        endpoint,
        reason: isIP(host) === 0 ? `${reason} (waited for ${timeout} ms)` : reason,
      })
    }
    tries++
    if (tries === 3) createLogger('distributed').warn({ host, reason }, 'waits for MASTER_ADDR')
  }
  const wait = { isSaid: isHost, deadline, what, signal, onMissing }
  const found = await awaitListenAddress(host, wait)
  return found?.listen ?? host
}

/**
 * Returns the error for a child process that inherited the environment of a rank. tsrun gives every
 * rank a token, which child processes do not inherit.
 */
function inherited(rank: number): Error {
  return tsrError('ERR_TSR_ENVIRONMENT', {
    variable: 'RANK',
    value: `${rank}, which this program has inherited from a rank that has started it`,
    expected: 'no such variable: start it without RANK, WORLD_SIZE and TSRUN_RUN_ID',
  })
}

/**
 * Requires a token unless the address is loopback. Without a token, every program that reaches the
 * ports could join the job.
 */
function checkToken(token: string, host: string, address: string): void {
  if (token !== '' || isLoopback(address)) return
  const expected =
    `the same secret on every rank, as the store is at ${host} ` +
    '(export TSRUN_TOKEN=$(openssl rand -hex 32) before srun or mpirun -x TSRUN_TOKEN)'
  throw tsrError('ERR_TSR_ENVIRONMENT', { variable: 'TSRUN_TOKEN', value: 'not set', expected })
}
