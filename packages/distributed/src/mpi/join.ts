import { createHash } from 'node:crypto'
import { tsrError } from '@tsrun/core'
import { hostIdentity, memoryStore, type Store } from '@tsrun/store'
import { checkPlace, expectedPlace, placeOf } from './launch.ts'
import { enterMpi } from './process.ts'
import { openSharedStore } from './store.ts'

/** What the caller says about this process, where it does. */
export interface MpiJoinOptions {
  readonly rank?: number
  readonly worldSize?: number
  /** Default: one that rank 0 hosts. */
  readonly store?: Store
  /** Name of the network interface of the store, or an own IP address. */
  readonly iface?: string
  /** Of the store, in milliseconds. */
  readonly timeout?: number
}

/** What MPI knows about this process, and the store of the job. */
export interface MpiWorld {
  readonly place: { readonly rank: number; readonly worldSize: number }
  readonly store: Store
  /** Whether `close` ends the connection, and with it what the store keeps for it. */
  readonly isOwn: boolean
  close(): Promise<void>
}

/**
 * Joins the job of mpirun or srun; a world of one where neither has started this process. Rank and
 * number of ranks come from libmpi; rank 0 hosts the store, at an address that MPI_Bcast tells.
 *
 * @throws ERR_TSR_TRANSPORT_UNAVAILABLE without libmpi; ERR_TSR_MPI_LAUNCH when the variables of the
 *   launcher say something else than libmpi; ERR_TSR_MPI
 */
export async function joinMpiWorld(options: MpiJoinOptions): Promise<MpiWorld> {
  const { env } = process
  const launched = placeOf(env)
  const expected = expectedPlace(env, options)
  if (launched === undefined) {
    if ((expected.worldSize ?? 1) === 1) return worldOfOne()
    const problem = `${expected.variable} says ${expected.worldSize} ranks, but neither mpirun nor srun has started this process`
    throw tsrError('ERR_TSR_MPI_LAUNCH', { problem })
  }
  const mpi = enterMpi()
  checkPlace(launched, mpi, mpi.library)
  checkPlace(expected, mpi, mpi.library)
  const { rank, worldSize, broadcast } = mpi
  if (worldSize === 1) return worldOfOne()
  const place = { rank, worldSize }
  const { store: given, iface, timeout } = options
  if (given !== undefined) {
    return { place, store: given, isOwn: false, close: () => Promise.resolve() }
  }
  const isOneHost = mpi.isSame(createHash('sha256').update(hostIdentity()).digest())
  const shared = await openSharedStore({ isHost: rank === 0, isOneHost, iface, timeout, broadcast })
  return { place, isOwn: true, ...shared }
}

function worldOfOne(): MpiWorld {
  const store = memoryStore()
  const place = { rank: 0, worldSize: 1 }
  return { place, store, isOwn: true, close: () => store.close() }
}
