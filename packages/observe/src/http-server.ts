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

/** Maximum connections in each stage, so that silent connections cannot lock out other clients. */
const MOST_CONNECTIONS = 128

/** A connection starts in stage 0. ASKED: it has sent a request. KNOWN: its client is known. */
const [ASKED, KNOWN] = [1, 2]

/** The headers of all answers. */
const headers = {
  'Content-Security-Policy':
    "default-src 'none'; script-src 'self'; style-src 'self'; style-src-attr 'unsafe-inline'; " +
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'X-Content-Type-Options': 'nosniff',
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Resource-Policy': 'same-origin',
  'Cache-Control': 'no-store',
}

/** Answers a request with a text. */
type Send = (status: number, text: string, headers?: Record<string, string>) => void

export interface Exchange {
  readonly request: IncomingMessage
  readonly response: ServerResponse
  readonly send: Send
  /** Marks the client as known. Connections of known clients are dropped last. */
  readonly admit: () => void
}

/**
 * Opens a server that does not keep the process alive.
 *
 * @param port - 0: any free port
 * @param answer - answers a GET or HEAD
 * @throws the system's error if it cannot listen
 */
export async function openHttpServer(
  host: string,
  port: number,
  answer: (exchange: Exchange) => void,
) {
  const pending = new PendingConnections<Socket>({
    limit: MOST_CONNECTIONS,
    drop: (socket) => {
      socket.destroy()
    },
  })
  const server = createServer(timing, (request, response) => {
    const { socket, method } = request
    pending.advance(socket, ASKED)
    for (const [name, value] of Object.entries(headers)) response.setHeader(name, value)
    const send: Send = (status, text, more) => {
      response.writeHead(status, {
        'Content-Type': 'text/plain; charset=utf-8',
        'Content-Length': String(Buffer.byteLength(text)),
        ...more,
      })
      response.end(text)
    }
    const admit = () => {
      pending.advance(socket, KNOWN)
    }
    try {
      // On a loopback address, reject other host names, even if they resolve to it (DNS rebinding).
      if (isLoopback(address.address) && !isLoopbackName(request.headers.host ?? '')) {
        send(421, 'not a name of this server\n')
      } else if (method !== 'GET' && method !== 'HEAD') {
        send(405, 'only GET\n', { Allow: 'GET, HEAD' })
      } else answer({ request, response, send, admit })
    } catch (error) {
      // A failed request must never end a job, for example if a file is missing.
      if (!response.headersSent) response.writeHead(500)
      if (!response.writableEnded) response.end(`${(error as Error).message}\n`)
    }
  }).unref()
  server.on('connection', (socket: Socket) => {
    socket.once('close', () => pending.delete(socket))
    pending.add(socket, socket.remoteAddress ?? '')
  })
  // Pipelined requests would keep the launcher busy.
  server.maxRequestsPerSocket = 1
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

function isLoopback(address: string) {
  return address === '::1' || address.startsWith('127.')
}

function isLoopbackName(host: string) {
  const name = host.replace(/:\d+$/, '')
  return name === 'localhost' || name === '[::1]' || /^127(\.\d{1,3}){3}$/.test(name)
}
