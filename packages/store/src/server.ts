import { once } from 'node:events'
import { createServer, type AddressInfo, type Server } from 'node:net'
import { tsrError } from '@tsrun/core'
import { Admission } from './admission.ts'
import { argumentError, checkDuration, checkToken } from './arguments.ts'
import type { Connection } from './connection.ts'
import { StoreData } from './data.ts'
import { nameEndpoint } from './endpoint.ts'
import { DEFAULT_TIMEOUT, localStore } from './memory-store.ts'
import { serveConnection } from './serving.ts'
import type { Store } from './store.ts'

const BACKLOG = 4096
/** Milliseconds in which clients may take their last answers when the server closes. */
const FAREWELL = 1000

export interface StoreServerOptions {
  /** Address to listen at; default 127.0.0.1. */
  readonly host?: string
  /** Default 0: the kernel picks a free one, see `endpoint`. */
  readonly port?: number
  /** The secret that every client must prove. */
  readonly token: string
  /** Time-out in milliseconds of calls on `local` that give none; default 300 000. */
  readonly timeout?: number
  /** Milliseconds in which a connection must prove the token; default 5 000. */
  readonly handshakeTimeout?: number
  /** Most connections that may be about to prove it; when one more comes the oldest is dropped. */
  readonly maxUnauthenticated?: number
  /** Told of each connection that was dropped because it did not prove the token. */
  readonly onRefused?: (peer: string, reason: string) => void
}

export interface StoreServerState {
  readonly connections: number
  readonly unauthenticated: number
  readonly keys: number
  /** Queues that are not empty. */
  readonly queues: number
  /** Calls that wait for a key or for a queue. */
  readonly waiting: number
  readonly watches: number
}

export interface StoreServer {
  /** Where it listens: the host as given, the port as bound. */
  readonly endpoint: { readonly host: string; readonly port: number }
  /** The same data without a socket, for the process that hosts it. */
  readonly local: Store
  /** What it holds at this moment. */
  inspect(): StoreServerState
  /** Ends all connections and calls; the data is gone. */
  close(): Promise<void>
}

/**
 * Starts the rendezvous store of a job.
 *
 * @example
 * const server = await startStoreServer({ token })
 * const store = await connectStore({ ...server.endpoint, token })
 *
 * @throws ERR_TSR_STORE_PORT_TAKEN, ERR_TSR_STORE_LISTEN, ERR_TSR_ARGUMENT
 */
export async function startStoreServer(options: StoreServerOptions): Promise<StoreServer> {
  const { host = '127.0.0.1', port = 0, token, timeout = DEFAULT_TIMEOUT } = options
  const { handshakeTimeout = 5000, maxUnauthenticated = 256, onRefused } = options
  checkToken(token)
  checkDuration('handshakeTimeout', handshakeTimeout)
  if (!Number.isInteger(port) || port < 0 || port > 65535) {
    throw argumentError('port', port, 'an integer from 0 to 65535')
  }
  const data = new StoreData()
  const connections = new Set<Connection>()
  const admission = new Admission({ token, handshakeTimeout, maxUnauthenticated, onRefused })
  const server = createServer({ noDelay: true, keepAlive: true, keepAliveInitialDelay: 10_000 })
  server.on('connection', (socket) => {
    admission.receive(socket, () => {
      const connection = serveConnection(socket, data, () => connections.delete(connection))
      connections.add(connection)
    })
  })
  const endpoint = { host, port: await listen(server, host, port) }
  const local = localStore(data, nameEndpoint(host, endpoint.port), timeout)
  return {
    endpoint,
    local: local.store,
    inspect: () => ({
      connections: connections.size,
      unauthenticated: admission.size,
      keys: data.size,
      queues: data.queues.size,
      waiting: data.waiters.size + data.queues.waiting,
      watches: data.watches,
    }),
    close: async () => {
      if (!server.listening) return
      const closed = once(server, 'close')
      server.close()
      admission.close()
      local.lost('the store was closed')
      data.clear()
      for (const connection of connections) connection.end()
      const force = setTimeout(() => {
        for (const connection of connections) connection.destroy('the store was closed')
      }, FAREWELL)
      await Promise.all([closed, ...[...connections].map((connection) => connection.closed)])
      clearTimeout(force)
    },
  }
}

async function listen(server: Server, host: string, port: number): Promise<number> {
  try {
    server.listen({ host, port, backlog: BACKLOG })
    await once(server, 'listening')
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException
    const endpoint = nameEndpoint(host, port)
    if (code === 'EADDRINUSE') throw tsrError('ERR_TSR_STORE_PORT_TAKEN', { endpoint }, { cause })
    throw tsrError('ERR_TSR_STORE_LISTEN', { endpoint, reason: message }, { cause })
  }
  return (server.address() as AddressInfo).port
}
