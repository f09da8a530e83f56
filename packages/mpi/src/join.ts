import { createHash } from 'node:crypto'
import { launchedPlace, placeVariables, tsrError } from '@tsrun/core'
import type { JobOptions, JoinedJob } from '@tsrun/distributed/transport'
import { hostIdentity, memoryStore } from '@tsrun/store'
import { enterMpi, type MpiProcess } from './process.ts'
import { openSharedStore } from './store.ts'

/**
 * Joins the job of mpirun or srun, or makes a world of one if neither started this process. Rank
 * and number of ranks come from libmpi. Rank 0 hosts the store and sends its address by MPI_Bcast.
 *
 * @throws ERR_TSR_TRANSPORT_UNAVAILABLE without libmpi; ERR_TSR_MPI_LAUNCH when the variables of the
 *   launcher differ from what libmpi says; ERR_TSR_MPI
 */
export async function joinMpiJob(options: JobOptions): Promise<JoinedJob> {
  const { env } = process
  // A PMIx server does not set a variable for the number of ranks.
  const rankOfPmix = numberOf(env['PMIX_RANK'])
  const launched =
    launchedPlace(env) ??
    (rankOfPmix === undefined
      ? undefined
      : { rank: rankOfPmix, worldSize: undefined, variable: 'PMIX_RANK' })
  const expected = {
    rank: options.rank ?? numberOf(env['RANK']),
    worldSize: options.worldSize ?? numberOf(env['WORLD_SIZE']),
    variable: options.worldSize === undefined ? 'WORLD_SIZE' : 'the option worldSize',
  }
  if (launched === undefined) {
    if ((expected.worldSize ?? 1) === 1) return worldOfOne()
    const problem = `${expected.variable} says ${expected.worldSize} ranks, but neither mpirun nor srun has started this process`
    throw tsrError('ERR_TSR_MPI_LAUNCH', { problem })
  }
  const mpi = enterMpi()
  checkPlace(launched, mpi)
  checkPlace(expected, mpi)
  const { rank, worldSize, broadcast } = mpi
  if (worldSize === 1) return worldOfOne()
  const known = launchedPlace(env)
  if (known !== undefined && env['RANK'] === undefined) Object.assign(env, placeVariables(known))
  const place = { rank, worldSize }
  const { store: given, iface, timeout } = options
  if (given !== undefined) {
    return { place, store: given, isOwn: false, close: () => Promise.resolve() }
  }
  const isOneHost = mpi.isSame(createHash('sha256').update(hostIdentity()).digest())
  const shared = await openSharedStore({ isHost: rank === 0, isOneHost, iface, timeout, broadcast })
  return { place, isOwn: true, ...shared }
}

function worldOfOne(): JoinedJob {
  const store = memoryStore()
  const place = { rank: 0, worldSize: 1 }
  return { place, store, isOwn: true, close: () => store.close() }
}

/** Rank and number of ranks; undefined if the launcher has not set the variables. */
interface Place {
  readonly rank: number | undefined
  readonly worldSize: number | undefined
  /** Name of the variable with the rank. */
  readonly variable: string
}

/**
 * Compares the launcher's variables with libmpi.
 * @throws ERR_TSR_MPI_LAUNCH if they differ
 */
function checkPlace({ worldSize, rank, variable }: Place, actual: MpiProcess): void {
  const { library } = actual
  if (worldSize !== undefined && worldSize !== actual.worldSize) {
    const problem = `${variable} says ${worldSize} ranks, but ${library} ${actual.worldSize}`
    throw tsrError('ERR_TSR_MPI_LAUNCH', { problem })
  }
  if (rank !== undefined && rank !== actual.rank) {
    const problem = `this process is rank ${rank} of the launcher, but rank ${actual.rank} of ${library}`
    throw tsrError('ERR_TSR_MPI_LAUNCH', { problem })
  }
}

function numberOf(text: string | undefined): number | undefined {
  return text !== undefined && /^\d+$/.test(text) ? Number(text) : undefined
}
