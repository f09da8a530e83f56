import { tsrError } from '@tsrun/core'
import { connectStore, localAddressTowards, memoryStore, startStoreServer } from '@tsrun/store'
import { joinMpiWorld } from '../../mpi/join.ts'
import type { ProcessGroup } from '../../process-group.ts'
import {
  checkOptions,
  resolveOptions,
  wantedTransport,
  type InitOptions,
  type InitSettings,
} from './options.ts'
import { joinFirstLife, type Rendezvous } from './generations.ts'

/**
 * Joins the job that the environment describes; a world of one without it.
 *
 * @throws ERR_TSR_ARGUMENT
 */
export async function joinWorld(options: InitOptions): Promise<ProcessGroup> {
  checkOptions(options)
  const mpi = wantedTransport(options) === 'mpi' ? await joinMpiWorld(options) : undefined
  const settings = resolveOptions({ ...options, ...mpi?.place })
  const rendezvous = mpi ?? (await openRendezvous(settings))
  try {
    return await joinFirstLife(settings, rendezvous)
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
  await checkToken(token, host, port)
  // Without a launcher that hosts the store, rank 0 does, as torch's env:// rendezvous.
  const isHost = rank === 0 && process.env['TSRUN_RUN_ID'] === undefined
  const server = isHost ? await startStoreServer({ host, port, token }) : undefined
  const connecting = connectStore({ host, port, token, timeout, ...(signal && { signal }) })
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

/** Without a token anybody who reaches the ports may join: tolerated on loopback only. */
async function checkToken(token: string, host: string, port: number): Promise<void> {
  if (token !== '') return
  const address = await localAddressTowards(host, port)
  if (address.startsWith('127.') || address === '::1') return
  const expected = `the same secret on every rank, as the store is at ${host}`
  throw tsrError('ERR_TSR_ENVIRONMENT', { variable: 'TSRUN_TOKEN', value: 'not set', expected })
}
