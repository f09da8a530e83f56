import type { IncomingMessage, Server } from 'node:http'
import type { Socket } from 'node:net'
import { PendingConnections } from '@tsrun/core'

/** Drops silent connections after `headersTimeout`; Node's default check would add up to 30 seconds. */
export const httpOptions = {
  maxHeaderSize: 8192,
  headersTimeout: 5000,
  connectionsCheckingInterval: 1000,
} as const

/** The progress of a connection. */
export type HttpStage = 'silent' | 'asked' | 'known'

const stages: Readonly<Record<HttpStage, number>> = { silent: 0, asked: 1, known: 2 }

/** Limits a server's connections, so that silent ones cannot lock out others. */
export class HttpConnections {
  readonly #pending: PendingConnections<Socket>

  /** @param limit - most connections in each stage */
  constructor(server: Server, limit: number) {
    this.#pending = new PendingConnections({
      limit,
      drop: (socket) => {
        socket.destroy()
      },
    })
    server.on('connection', (socket: Socket) => {
      socket.once('close', () => this.#pending.delete(socket))
      this.#pending.add(socket, socket.remoteAddress ?? '')
    })
  }

  /** Moves the connection of a request to this stage. */
  advance({ socket }: IncomingMessage, stage: HttpStage): void {
    this.#pending.advance(socket, stages[stage])
  }
}
