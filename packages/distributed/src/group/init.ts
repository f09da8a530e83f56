import { createLogger, isTsrError, tsrError } from '@tsrun/core'
import {
  addressOfInterface,
  connectStore,
  hostIdentity,
  isLoopback,
  localAddressTowards,
  memoryStore,
  prefixStore,
  startStoreServer,
  type Store,
} from '@tsrun/store'
import { checkSameTuning, identityOf, type TuningIdentity } from '../algorithms/tuning.ts'
import { Arena } from '../arena/arena.ts'
import { createMemory, heapOf } from '../arena/heap.ts'
import { Journal } from '../diagnosis/journal.ts'
import { openStatus } from '../diagnosis/status.ts'
import { Engine } from '../engine/engine.ts'
import type { EngineHost } from '../hosts/host.ts'
import { InlineHost } from '../hosts/inline-host.ts'
import { WorkerHost } from '../hosts/worker/worker-host.ts'
import type { ProcessGroup } from '../process-group.ts'
import type { Endpoint } from '../transports/connect/mesh.ts'
import { prepareTransport, type ConnectOptions } from '../transports/open-transport.ts'
import {
  createSegment,
  type Segment,
  type SegmentAddress,
} from '../transports/shared-memory/segment.ts'
import { resolveOptions, type InitOptions, type InitSettings } from './init-options.ts'
import { agreeOnSharing } from './sharing.ts'
import { createWorldGroup } from './world-group.ts'

/** A store and how to let go of it. */
interface Rendezvous {
  readonly store: Store
  close(): Promise<void>
}

/** Joins the job that the environment describes; a world of one without it. */
export async function joinWorld(options: InitOptions): Promise<ProcessGroup> {
  const settings = resolveOptions(options)
  const { rank, worldSize, timeout } = settings
  const rendezvous = await openRendezvous(settings)
  try {
    const generation = settings.environment?.restartCount ?? 0
    const store = prefixStore(rendezvous.store, `world/${generation}/`)
    const host = await openHost(settings, store)
    return createWorldGroup({
      rank,
      worldSize,
      host,
      store,
      timeout,
      onDestroyed: () => rendezvous.close(),
    })
  } catch (error) {
    await rendezvous.close()
    throw error
  }
}

async function openRendezvous(settings: InitSettings): Promise<Rendezvous> {
  const { environment, worldSize, rank, token, timeout, store } = settings
  if (store !== undefined) return { store, close: () => Promise.resolve() }
  if (worldSize === 1 || environment === undefined) {
    if (worldSize > 1) {
      const expected = 'also a store, for a world of more than one rank'
      throw tsrError('ERR_TSR_ARGUMENT', { name: 'worldSize', value: worldSize, expected })
    }
    const alone = memoryStore()
    return { store: alone, close: () => alone.close() }
  }
  const { masterAddr: host, masterPort: port } = environment
  await checkToken(token, host, port)
  // Without a launcher that hosts the store, rank 0 does, as torch's env:// rendezvous.
  const isHost = rank === 0 && process.env['TSRUN_RUN_ID'] === undefined
  const server = isHost ? await startStoreServer({ host, port, token }) : undefined
  const client = await connectStore({ host, port, token, timeout })
  return {
    store: client,
    close: async () => {
      await client.close()
      await server?.close()
    },
  }
}

/** Without a token anybody who reaches the ports may join: tolerated on loopback only. */
async function checkToken(token: string, host: string, port: number): Promise<void> {
  if (token !== '') return
  const address = await localAddressTowards(host, port)
  if (address.startsWith('127.') || address === '::1') return
  const expected = `the same secret on every rank, as the store is at ${host}`
  throw tsrError('ERR_TSR_ENVIRONMENT', { variable: 'TSRUN_TOKEN', value: 'not set', expected })
}

async function openHost(settings: InitSettings, store: Store): Promise<EngineHost> {
  const { rank, worldSize, engine, transport, arena } = settings
  const { ladders } = settings.tuning
  const memory = createMemory(arena)
  const recorder = new Journal({ rank, worldSize, settings: settings.diagnosis })
  recorder.publishAt(openStatus(process.env, rank))
  const journal = recorder.shared
  if (worldSize === 1) {
    const heap = heapOf(memory)
    const alone = new Engine({ heap, rank, worldSize, transport: undefined, journal, ladders })
    return new InlineHost(alone, new Arena(heap, rank), recorder, undefined)
  }
  const listen = { host: await listeningAddress(settings), ports: settings.ports, rank }
  const segment = offerSegment(settings, memory)
  const exchange = async (endpoint: Endpoint): Promise<ConnectOptions> => {
    try {
      return await exchangeEndpoints(settings, store, {
        ...endpoint,
        on: hostIdentity(),
        segment: segment?.address,
        tuning: identityOf(settings.tuning),
      })
    } finally {
      segment?.seal()
    }
  }
  if (engine === 'worker') {
    const worker = new WorkerHost({
      memory,
      rank,
      worldSize,
      transport,
      listen,
      journal: recorder,
      ladders,
    })
    await worker.start(exchange)
    return worker
  }
  const heap = heapOf(memory)
  const prepared = await prepareTransport(transport, listen)
  const mesh = await exchange(prepared.endpoint).catch((error: unknown) => {
    prepared.close()
    throw error
  })
  const opened = await prepared.connect(heap, mesh)
  if (opened.kind !== 'blocking') {
    const reason = 'it cannot block, which the inline engine needs'
    throw tsrError('ERR_TSR_TRANSPORT_UNAVAILABLE', { transport, reason })
  }
  const inline = new Engine({
    heap,
    rank,
    worldSize,
    transport: opened.transport,
    journal,
    ladders,
  })
  return new InlineHost(inline, new Arena(heap, rank), recorder, opened.transport)
}

async function listeningAddress({ environment, iface }: InitSettings): Promise<string> {
  if (iface !== undefined) return addressOfInterface(iface)
  if (environment === undefined) return '127.0.0.1'
  return await localAddressTowards(environment.masterAddr, environment.masterPort)
}

/** A heap that can be shared, where it is wanted and works. */
function offerSegment(
  { sharedMemory }: InitSettings,
  memory: WebAssembly.Memory,
): Segment | undefined {
  if (sharedMemory === 'off') return undefined
  try {
    return createSegment(memory)
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error)
    if (sharedMemory === 'required') {
      throw tsrError('ERR_TSR_TRANSPORT_UNAVAILABLE', { transport: 'shared-memory', reason })
    }
    createLogger('distributed').warn({ reason }, 'no shared memory: tcp serves within this host')
    return undefined
  }
}

/** What a rank publishes about itself. */
interface Published extends Endpoint {
  /** The host, see `hostIdentity`. */
  readonly on: string
  readonly segment: SegmentAddress | undefined
  readonly tuning: TuningIdentity
}

/** Publishes where this rank listens and waits for all others. */
async function exchangeEndpoints(
  { rank, worldSize, token, timeout, environment, sharedMemory }: InitSettings,
  store: Store,
  own: Published,
): Promise<ConnectOptions> {
  const keyOf = (peer: number): string => `endpoint/${peer}`
  await store.set(keyOf(rank), JSON.stringify(own))
  const peers = Array.from({ length: worldSize }, (_, peer) => peer)
  try {
    await store.wait(peers.map(keyOf), { timeout })
  } catch (error) {
    if (!isTsrError(error) || error.code !== 'ERR_TSR_STORE_TIMEOUT') throw error
    const missing = await missingRanks(store, peers, keyOf)
    const what = `rank ${rank}: waiting for ranks ${missing.join(', ')} to join the job`
    throw tsrError('ERR_TSR_TIMEOUT', { what, milliseconds: timeout }, { cause: error })
  }
  const endpoints = await Promise.all(
    peers.map(async (peer) => {
      const text = new TextDecoder().decode(await store.get(keyOf(peer)))
      return JSON.parse(text) as Published
    }),
  )
  refuseLoopback(endpoints)
  const tunings = endpoints.map(({ tuning }) => tuning)
  checkSameTuning(rank, tunings)
  const segments = endpoints.map(({ segment }) => segment)
  const isRequired = sharedMemory === 'required'
  const sharing = await agreeOnSharing(store, { rank, segments, isRequired, timeout })
  const place = environment && {
    rank: environment.localRank,
    size: environment.localWorldSize,
  }
  const life = `${environment?.runId ?? ''} ${environment?.restartCount ?? 0}`
  return { token, purpose: `data ${life}`, rank, endpoints, timeout, sharing, place }
}

/** @throws ERR_TSR_LOOPBACK when a rank of another host could not be reached */
function refuseLoopback(endpoints: readonly Published[]): void {
  if (endpoints.every(({ on }) => on === endpoints[0]?.on)) return
  const rank = endpoints.findIndex(({ host }) => isLoopback(host))
  if (rank < 0) return
  const address = endpoints[rank]!.host
  throw tsrError('ERR_TSR_LOOPBACK', { who: `Rank ${rank}`, address })
}

async function missingRanks(
  store: Store,
  peers: readonly number[],
  keyOf: (peer: number) => string,
): Promise<number[]> {
  const present = await Promise.all(peers.map((peer) => store.check([keyOf(peer)])))
  return peers.filter((peer) => present[peer] !== true)
}
