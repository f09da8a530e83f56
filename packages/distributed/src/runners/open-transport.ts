import { readCoreRanks, tsrError } from '@tsrun/core'
import { allowedCores, isAvailable } from '@tsrun/native'
import type { Heap } from '../arena/heap.ts'
import type { ListenOptions, Endpoint } from '../transports/dialer.ts'
import { connectMesh, type MeshOptions } from '../transports/mesh.ts'
import { openNodeDialer, nodeTransport } from '../transports/node-transport.ts'
import { loadPlugIn } from '../transports/plug-in.ts'
import {
  checkRoom,
  closeSegments,
  hostsOf,
  type Sharing,
} from '../transports/shared-memory/neighbours.ts'
import { sharedMemoryTransport } from '../transports/shared-memory/shared-memory-transport.ts'
import {
  openPollSet,
  openTcpDialer,
  tcpTransport,
  type DescriptorChannel,
} from '../transports/tcp-transport.ts'
import type { BlockingTransport, EventTransport, LocalPlace } from '../transports/transport.ts'

/** The transports between ranks that share no memory. */
export type StreamName = 'tcp' | 'node' | 'mpi'

/** The endpoints of all ranks, and which ranks share memory. */
export interface ConnectOptions extends MeshOptions {
  readonly sharing: Sharing | undefined
  readonly place: LocalPlace | undefined
}

/** A transport that can block has the method `sleep`. */
export type OpenedTransport = BlockingTransport | EventTransport

/** A transport that already listens; `connect` it once the peers' endpoints are known. */
export interface PreparedTransport {
  readonly endpoint: Endpoint
  close(): void
  connect(heap: Heap, options: ConnectOptions, signal?: AbortSignal): Promise<OpenedTransport>
}

/**
 * Opens a transport and starts to listen.
 *
 * @param threads - number of threads of a rank that compute or wait; waiting threads spin if each
 * thread has a core
 * @throws ERR_TSR_TRANSPORT_UNAVAILABLE, ERR_TSR_PORT_RANGE, ERR_TSR_PACKAGE_MISSING
 */
export async function prepareTransport(
  name: StreamName,
  listen: ListenOptions,
  threads: number,
): Promise<PreparedTransport> {
  if (name === 'node') {
    const dialer = await openNodeDialer(listen)
    return {
      endpoint: dialer.endpoint,
      close: () => {
        dialer.stopListening()
      },
      connect: async (heap, options, signal) => {
        const channels = await connectMesh(dialer, options, signal)
        // Other ranks may share memory even if this rank does not. All ranks must choose the same
        // algorithms.
        const hosts = options.sharing && hostsOf(options.sharing)
        return nodeTransport(heap, channels, hosts)
      },
    }
  }
  if (name === 'mpi') {
    const plugIn = await loadPlugIn(name)
    return {
      // libmpi connects the ranks itself.
      endpoint: { host: '', port: 0 },
      close: () => undefined,
      connect: (heap, { rank, endpoints }) =>
        Promise.resolve(plugIn.open(heap, rank, endpoints.length)),
    }
  }
  const native = isAvailable()
  if (!native.available) {
    const { reason } = native
    throw tsrError('ERR_TSR_TRANSPORT_UNAVAILABLE', { transport: name, reason })
  }
  const dialer = await openTcpDialer(listen)
  return {
    endpoint: dialer.endpoint,
    close: () => {
      dialer.stopListening()
    },
    connect: async (heap, options, signal) => {
      const { rank, sharing } = options
      const connect = async (): Promise<(DescriptorChannel | undefined)[]> => {
        if (sharing !== undefined) checkRoom(heap, rank, sharing)
        return await connectMesh(dialer, { ...options, apart: sharing?.neighbours[rank] }, signal)
      }
      const channels = await connect().catch((error: unknown) => {
        dialer.stopListening()
        if (sharing !== undefined) closeSegments(sharing)
        throw error
      })
      const fds = channels.map((channel) => channel?.fd)
      const polls = openPollSet(fds.length, sharing?.bell)
      const keys = channels.map((channel) => channel?.keys)
      const tcp = tcpTransport(heap, fds, polls, options.place, keys)
      if (sharing === undefined) return tcp
      const spins = haveCores(threads, options)
      return sharedMemoryTransport({ heap, rank, tcp, polls, sharing, spins })
    },
  }
}

/** Whether this host has a core for each thread, if each of its ranks has `threads` threads. */
export function haveCores(
  threads: number,
  { place }: { readonly place?: LocalPlace | undefined },
): boolean {
  return threads * (readCoreRanks() ?? place?.size ?? Infinity) <= allowedCores().length
}
