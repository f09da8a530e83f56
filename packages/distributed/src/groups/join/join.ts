import { tsrError, type RankEnvironment } from '@tsrun/core'
import {
  connectStore,
  isLoopback,
  localAddressTowards,
  memoryStore,
  startStoreServer,
  storeTlsOf,
} from '@tsrun/store'
import { joinMpiWorld } from '../../mpi/join.ts'
import type { EngineProcessGroup } from '../group.ts'
import { addressForPeers } from './endpoints.ts'
import { joinGeneration, type Rendezvous } from './generations.ts'
import {
  completeOptions,
  readOptions,
  wantedTransport,
  type InitOptions,
  type InitSettings,
} from './options.ts'

/**
 * Joins the job that the environment describes, or a world of one without it.
 *
 * @param departures - of the world that this process was in before, if any
 * @throws ERR_TSR_ARGUMENT, and as `initProcessGroup`
 */
export async function joinWorld(
  options: InitOptions,
  departures?: Set<string>,
): Promise<EngineProcessGroup> {
  const given = readOptions(options)
  const mpi = wantedTransport(given) === 'mpi' ? await joinMpiWorld(options) : undefined
  const settings = completeOptions({ ...given, ...mpi?.place })
  const rendezvous = mpi ?? (await openRendezvous(settings))
  try {
    return await joinGeneration(settings, rendezvous, departures)
  } catch (error) {
    await rendezvous.close()
    throw error
  }
}

async function openRendezvous(settings: InitSettings): Promise<Rendezvous> {
  const { environment, worldSize, rank, token, timeout, store, signal } = settings
  if (store !== undefined) return { store, isOwn: false, close: () => Promise.resolve() }
  if (worldSize === 1 || environment === undefined) {
    if (worldSize > 1) {
      const expected = 'also a store, for a world of more than one rank'
      throw tsrError('ERR_TSR_ARGUMENT', { name: 'worldSize', value: worldSize, expected })
    }
    const alone = memoryStore()
    return { store: alone, isOwn: true, close: () => alone.close() }
  }
  const { masterAddr: host, masterPort: port } = environment
  const address = await addressForPeers(environment)
  checkToken(token, host, address)
  // without a launcher that hosts the store rank 0 does, as with torch's env:// rendezvous
  const isHost = rank === 0 && process.env['TSRUN_RUN_ID'] === undefined
  const tls = storeTlsOf(settings.protection)
  const common = { port, token, ...(tls && { tls }) }
  const server = isHost
    ? await startStoreServer({ host: await listeningHost(environment, address), ...common })
    : undefined
  const connecting = connectStore({ host, ...common, timeout, ...(signal && { signal }) })
  const client = await connecting.catch(async (error: unknown) => {
    await server?.close()
    throw error
  })
  return {
    store: client,
    isOwn: true,
    close: async () => {
      await client.close()
      await server?.close()
    },
  }
}

/** Everywhere if the name of the host means loopback here, and another address on other hosts. */
async function listeningHost(
  { masterAddr, masterPort }: RankEnvironment,
  address: string,
): Promise<string> {
  const own = await localAddressTowards(masterAddr, masterPort)
  if (!isLoopback(own) || isLoopback(address)) return masterAddr
  return own.includes(':') ? '::' : '0.0.0.0'
}

/** Without a token anybody who reaches the ports may join, so it is only optional on loopback. */
function checkToken(token: string, host: string, address: string): void {
  if (token !== '' || isLoopback(address)) return
  const expected =
    `the same secret on every rank, as the store is at ${host} ` +
    '(export TSRUN_TOKEN=$(openssl rand -hex 32) before srun or mpirun -x TSRUN_TOKEN)'
  throw tsrError('ERR_TSR_ENVIRONMENT', { variable: 'TSRUN_TOKEN', value: 'not set', expected })
}
