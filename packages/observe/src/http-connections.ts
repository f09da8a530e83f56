import type { IncomingMessage, Server } from 'node:http'
import type { Socket } from 'node:net'
import { PendingConnections } from '@tsrun/core'

/** Options of a server whose silent connections end after `headersTimeout`, not 30 seconds later. */
export const httpOptions = {
  maxHeaderSize: 8192,
  headersTimeout: 5000,
  connectionsCheckingInterval: 1000,
} as const

/** How far a connection has come. */
export type HttpStage = 'silent' | 'asked' | 'known'

const stages: Readonly<Record<HttpStage, number>> = { silent: 0, asked: 1, known: 2 }

/** Keeps the connections of a server few, so that those that send nothing lock out no others. */
export class HttpConnections {
  readonly #pending: PendingConnections<Socket>

  /** @param limit - most connections of each stage */
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

  /** Notes that the connection of a request has come this far. */
  advance({ socket }: IncomingMessage, stage: HttpStage): void {
    this.#pending.advance(socket, stages[stage])
  }
}
