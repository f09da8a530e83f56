import { once } from 'node:events'
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net'
import {
  argumentError,
  callback,
  count,
  declareOptions,
  filled,
  TOKEN_EXPECTED,
  tsrError,
} from '@tsrun/core'
import { isReachable, nameEndpoint } from './addresses.ts'
import { createAdmission } from './admission.ts'
import { durationRule, tlsRule, tokenRule, toTls } from './arguments.ts'
import { openConnection, type Connection } from './connection.ts'
import { createStoreData, type StoreData } from './data.ts'
import { localStore } from './memory-store.ts'
import { decodeClientMessage, encodeAnswer } from './protocol.ts'
import { createSession } from './session.ts'
import type { StoreTls } from './secure-sockets.ts'
import type { Store } from './store.ts'

const BACKLOG = 4096
/** Milliseconds for clients to read their last answers when the server closes. */
const FAREWELL = 1000
/** A client that leaves this many bytes unread gets no answers until it has read some. */
const ANSWER_BACKLOG_LIMIT = 16 * 1024 * 1024
/** A client that watches keys is dropped when it leaves this many bytes unread. */
const EVENT_BACKLOG_LIMIT = 64 * 1024 * 1024

/** Options of `startStoreServer`. */
export interface StoreServerOptions {
  /** Address to listen at; `::` means all IPv6 and IPv4 addresses. Default: 127.0.0.1. */
  readonly host?: string
  /** Port to listen at. Default: 0, for a free port that the kernel picks; see `endpoint`. */
  readonly port?: number
  /**
   * Every client must prove that it knows this secret. '' admits every client, and is rejected if other
   * hosts can reach the store.
   */
  readonly token: string
  /**
   * Encrypts all connections: by the token (`true`) or by a certificate. Clients need the same setting.
   * Default: no encryption.
   */
  readonly tls?: StoreTls | false | undefined
  /** Milliseconds for a connection to prove the token. Default: 5 000. */
  readonly handshakeTimeout?: number
  /**
   * Maximum unauthenticated connections in each stage of the handshake. At the limit, a random
   * connection of the older half is dropped. Default: 1024.
   */
  readonly maxUnauthenticated?: number
  /** Called for each connection that is dropped because it does not prove the token. */
  readonly onRefused?: (peer: string, reason: string) => void
}

/** The state of a store server, which `StoreServer.inspect` returns. */
export interface StoreServerState {
  readonly isOpen: boolean
  readonly connections: number
  readonly unauthenticated: number
  readonly keys: number
  /** Number of calls that wait for a key or a queue. */
  readonly waiting: number
  readonly watches: number
}

/** A running store server. */
export interface StoreServer {
  /** The host as given in the options, and the bound port. */
  readonly endpoint: { readonly host: string; readonly port: number }
  /** A store on the same data for callers in the server's process. It needs no socket. */
  readonly local: Store
  inspect(): StoreServerState
  /** Allows the process to end while the server is still open. */
  unref(): void
  /**
   * Closes the server when the last client has left, and keeps the process alive until then. `unref`
   * cancels this.
   */
  closeAfterClients(): Promise<void>
  /** Ends all connections and calls, and deletes the data. */
  close(): Promise<void>
}

const readOptions = declareOptions({
  host: filled().default('127.0.0.1'),
  port: count({ to: 65535 }).default(0),
  token: tokenRule,
  tls: tlsRule,
  handshakeTimeout: durationRule.default(5000),
  maxUnauthenticated: count({ from: 1 }).default(1024),
  onRefused: callback<(peer: string, reason: string) => void>().optional(),
})

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
  const { host, port, tls, token, ...limits } = readOptions(options)
  if (token === '' && (await isReachable(host))) {
    throw argumentError(
      'token',
      'an empty text',
      `${TOKEN_EXPECTED}, because other hosts can reach ${host}`,
    )
  }
  const data = createStoreData()
  const connections = new Set<Connection>()
  const admission = createAdmission({ token, tls: toTls(tls, token), ...limits })
  const server = createServer({ noDelay: true, keepAlive: true, keepAliveInitialDelay: 10_000 })
  let isUnref = false
  const setUnref = (wanted: boolean) => {
    isUnref = wanted
    for (const connection of connections) connection.setBusy(!wanted)
    if (wanted) server.unref()
    else server.ref()
  }
  server.on('connection', (socket) => {
    if (isUnref) socket.unref()
    admission.receive(socket, (spoken) => {
      const connection = serveConnection(spoken, data, () => connections.delete(connection))
      connections.add(connection)
    })
  })
  const endpoint = { host, port: await listen(server, host, port) }
  const local = localStore(data, nameEndpoint(host, endpoint.port))
  const close = async () => {
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
  }
  return {
    endpoint,
    local: local.store,
    inspect: () => ({
      isOpen: server.listening,
      connections: connections.size,
      unauthenticated: admission.size,
      keys: data.size,
      waiting: data.waiters.size + data.queues.waiting,
      watches: data.watches,
    }),
    unref: () => {
      setUnref(true)
    },
    closeAfterClients: async () => {
      setUnref(false)
      while (connections.size > 0) {
        await Promise.race([...connections].map((connection) => connection.closed))
        if (isUnref) return
      }
      await close()
    },
    close,
  }
}

async function listen(server: Server, host: string, port: number) {
  try {
    server.listen({ host, port, backlog: BACKLOG })
    await once(server, 'listening')
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException
    const hasNoIPv6 = code === 'EAFNOSUPPORT' || code === 'EADDRNOTAVAIL'
    if (host === '::' && hasNoIPv6) return await listen(server, '0.0.0.0', port)
    const endpoint = nameEndpoint(host, port)
    if (code === 'EADDRINUSE') throw tsrError('ERR_TSR_STORE_PORT_TAKEN', { endpoint }, { cause })
    throw tsrError('ERR_TSR_STORE_LISTEN', { endpoint, reason: message }, { cause })
  }
  return (server.address() as AddressInfo).port
}

/** Serves an authenticated socket until it closes. Drops a client that breaks the protocol. */
function serveConnection(socket: Socket, data: StoreData, onClose: () => void): Connection {
  const session = createSession(data, {
    send: (message) => {
      if ('changed' in message && connection.backlog() > EVENT_BACKLOG_LIMIT) {
        connection.destroy('it does not read the events of its watches')
      } else {
        connection.send(...encodeAnswer(message))
      }
    },
    isFull: () => connection.backlog() > ANSWER_BACKLOG_LIMIT,
  })
  const connection = openConnection(
    socket,
    {
      onFrame: (frame) => {
        session.handle(decodeClientMessage(frame))
      },
      onDrain: () => {
        session.resume()
      },
      onClose: () => {
        session.close()
        onClose()
      },
    },
    true,
  )
  connection.start()
  return connection
}
