import type { TransportPlugIn } from '@tsrun/distributed/transport'
import { joinMpiJob, leaveMpiAtExit } from './join.ts'
import { openLibMpi } from './libmpi.ts'
import { openMpiTransport } from './mpi-transport.ts'

/** The transport `mpi`, which `@tsrun/distributed` loads when a rank chooses it. */
export const transport: TransportPlugIn = {
  join: async (options) => ({ ...(await joinMpiJob(options)), onConnected: leaveMpiAtExit }),
  open: (heap, rank, worldSize) => openMpiTransport(openLibMpi(), heap, rank, worldSize),
}
