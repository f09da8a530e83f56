import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { PendingConnections } from '@tsrun/core'

/** Checks `headersTimeout` every second, because the default interval of Node is 30 seconds. */
const timing = {
  maxHeaderSize: 8192,
  headersTimeout: 5000,
  connectionsCheckingInterval: 1000,
} as const

/** Stages of a connection: it has sent a request, or its client is known. New connections have 0. */
const [ASKED, KNOWN] = [1, 2]

/** Answers a request with a text. */
export type Send = (status: number, text: string, headers?: Record<string, string>) => void

interface Exchange {
  readonly request: IncomingMessage
  readonly response: ServerResponse
  readonly send: Send
  /** Marks the client as known. Connections of known clients are dropped last. */
  readonly admit: () => void
}

interface HttpOptions {
  readonly host: string
  /** 0: any free port. */
  readonly port: number
  /** Maximum connections in each stage, so that silent connections cannot lock out other clients. */
  readonly limit: number
  /** Maximum requests of a connection; 0: no limit. */
  readonly requests: number
  /** The headers of all answers. */
  readonly headers: Readonly<Record<string, string>>
  /** Whether a request may use this host name for this address, as a defence against DNS rebinding. */
  readonly isOwnName: (name: string, address: AddressInfo) => boolean
  /** Answers a GET or HEAD. */
  readonly answer: (exchange: Exchange) => void
}

/** Opens a server that does not keep the process alive. @throws the system's error if it cannot listen */
export async function openHttpServer(options: HttpOptions) {
  const { host, port, limit, requests, headers, isOwnName, answer } = options
  const pending = new PendingConnections<Socket>({
    limit,
    drop: (socket) => {
      socket.destroy()
    },
  })
  const server = createServer(timing, (request, response) => {
    const { socket, method } = request
    pending.advance(socket, ASKED)
    const send: Send = (status, text, more) => {
      response.writeHead(status, {
        ...headers,
        'Content-Type': 'text/plain; charset=utf-8',
        'Content-Length': String(Buffer.byteLength(text)),
        ...more,
      })
      response.end(method === 'HEAD' ? undefined : text)
    }
    const admit = () => {
      pending.advance(socket, KNOWN)
    }
    try {
      if (!isOwnName(request.headers.host ?? '', address)) {
        send(421, 'not a name of this server\n')
      } else if (method !== 'GET' && method !== 'HEAD') {
        send(405, 'only GET\n', { Allow: 'GET, HEAD' })
      } else answer({ request, response, send, admit })
    } catch (error) {
      // A failed request must never end a job, for example if a file is missing.
      if (!response.headersSent) response.writeHead(500, headers)
      if (!response.writableEnded) response.end(`${(error as Error).message}\n`)
    }
  }).unref()
  server.on('connection', (socket: Socket) => {
    socket.once('close', () => pending.delete(socket))
    pending.add(socket, socket.remoteAddress ?? '')
  })
  server.maxRequestsPerSocket = requests
  await once(server.listen(port, host), 'listening')
  const address = server.address() as AddressInfo
  return {
    address,
    /** Closes the server. Drops clients that do not read their answers within `patience` milliseconds. */
    async close(patience: number) {
      const closed = once(server, 'close')
      server.close()
      server.closeIdleConnections()
      const late = setTimeout(() => {
        server.closeAllConnections()
      }, patience)
      await closed
      clearTimeout(late)
    },
  }
}
