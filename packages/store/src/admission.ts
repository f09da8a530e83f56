import type { Socket } from 'node:net'
import { nameEndpoint } from './endpoint.ts'
import { greetClient } from './handshake.ts'

export interface AdmissionOptions {
  readonly token: string
  /** Milliseconds that a connection has to prove the token. */
  readonly handshakeTimeout: number
  /** Most connections that may be about to prove it. */
  readonly maxUnauthenticated: number
  /** Told of each connection that was dropped because it did not prove the token. */
  readonly onRefused?: ((peer: string, reason: string) => void) | undefined
}

/** The door of the server: sockets that have not proven the token yet. */
export class Admission {
  readonly #options: AdmissionOptions
  readonly #candidates = new Map<Socket, (reason: string) => void>()

  constructor(options: AdmissionOptions) {
    this.#options = options
  }

  get size(): number {
    return this.#candidates.size
  }

  /** Calls `admit` when the socket has proven the token, else destroys it; never throws. */
  receive(socket: Socket, admit: (socket: Socket) => void): void {
    const { token, handshakeTimeout, maxUnauthenticated } = this.#options
    const peer = nameEndpoint(socket.remoteAddress ?? 'unknown', socket.remotePort ?? 0)
    const refuse = (reason: string): void => {
      clearTimeout(timer)
      socket.destroy()
      if (this.#candidates.delete(socket)) this.#options.onRefused?.(peer, reason)
    }
    const timer = setTimeout(refuse, handshakeTimeout, 'it stayed silent')
    this.#candidates.set(socket, refuse)
    socket.on('error', (error) => {
      refuse(error.message)
    })
    // The oldest goes, not the newest: who means well proves the token at once, so a crowd of
    // silent connections cannot lock it out.
    const [oldest] = this.#candidates.values()
    if (this.#candidates.size > maxUnauthenticated) oldest?.('too many others came after it')
    greetClient(socket, token).then(
      (proven) => {
        if (!proven) refuse('it does not know the token')
        else if (this.#candidates.delete(socket)) {
          clearTimeout(timer)
          admit(socket)
        }
      },
      (error: unknown) => {
        refuse(error instanceof Error ? error.message : String(error))
      },
    )
  }

  close(): void {
    for (const refuse of [...this.#candidates.values()]) refuse('the store is closing')
  }
}
