import type { Socket } from 'node:net'
import {
  clientHandshake,
  Crowd,
  HELLO_BYTES,
  PROOF_BYTES,
  serverHandshake,
  type HandshakeRefusal,
} from '@tsrun/core'
import { nameEndpoint } from './addresses.ts'

const PURPOSE = 'store'

/**
 * The client's side: both ends prove to each other that they know the token.
 *
 * @returns why the client refuses the server; undefined when both have proven it
 */
export async function greetServer(
  socket: Socket,
  token: string,
): Promise<HandshakeRefusal | undefined> {
  const handshake = clientHandshake(token, PURPOSE)
  socket.write(handshake.hello)
  const answer = handshake.answer(await readExactly(socket, HELLO_BYTES))
  if ('refused' in answer) return answer.refused
  socket.write(answer.proof)
  return handshake.trusts(await readExactly(socket, PROOF_BYTES)) ? undefined : 'token'
}

/** The server's side: whether the client proves the token. Nothing that it sends before is decoded. */
async function greetClient(socket: Socket, token: string): Promise<boolean> {
  const handshake = serverHandshake(token, PURPOSE)
  const hello = handshake.answer(await readExactly(socket, HELLO_BYTES))
  if (hello === undefined) return false
  socket.write(hello)
  const { accepted, proof } = handshake.judge(await readExactly(socket, PROOF_BYTES))
  if (accepted) socket.write(proof)
  else {
    // It must be on its way before the connection is destroyed.
    await new Promise((resolve) => socket.write(proof, resolve))
  }
  return accepted
}

/** Reads `length` bytes and leaves what follows in the socket; rejects when the socket ends before. */
async function readExactly(socket: Socket, length: number): Promise<Uint8Array> {
  return await new Promise((resolve, reject) => {
    const read = (): void => {
      const bytes = socket.read(length) as Buffer | null
      if (bytes?.byteLength !== length) return
      finish()
      resolve(bytes)
    }
    const fail = (error?: Error): void => {
      finish()
      reject(error ?? new Error('the connection ended during the handshake'))
    }
    const end = (): void => {
      fail()
    }
    const finish = (): void => {
      socket.off('readable', read).off('error', fail).off('end', end).off('close', end)
    }
    socket.on('readable', read).on('error', fail).on('end', end).on('close', end)
    read()
  })
}

export interface AdmissionOptions {
  readonly token: string
  /** Milliseconds in which a connection must prove the token. */
  readonly handshakeTimeout: number
  /** Largest number of connections that have not proven the token yet. */
  readonly maxUnauthenticated: number
  /** Called for each connection that was dropped because it did not prove the token. */
  readonly onRefused?: ((peer: string, reason: string) => void) | undefined
}

interface Candidate {
  readonly refuse: (reason: string) => void
}

/** The sockets of a server that have not proven the token yet. */
export class Admission {
  readonly #options: AdmissionOptions
  readonly #candidates = new Crowd<Candidate>()

  constructor(options: AdmissionOptions) {
    this.#options = options
  }

  get size(): number {
    return this.#candidates.size
  }

  /** Calls `admit` once the socket has proven the token, or destroys it; never throws. */
  receive(socket: Socket, admit: (socket: Socket) => void): void {
    const { token, handshakeTimeout, maxUnauthenticated } = this.#options
    const peer = nameEndpoint(socket.remoteAddress ?? 'unknown', socket.remotePort ?? 0)
    const refuse = (reason: string): void => {
      clearTimeout(timer)
      socket.destroy()
      if (this.#candidates.delete(candidate)) this.#options.onRefused?.(peer, reason)
    }
    const timer = setTimeout(refuse, handshakeTimeout, 'it stayed silent')
    const candidate = { refuse }
    this.#candidates.add(candidate, socket.remoteAddress ?? '')
    socket.on('error', (error) => {
      refuse(error.message)
    })
    // The oldest is dropped, not the newest: a proper client proves the token at once, so that a
    // crowd of silent connections cannot lock it out.
    if (this.#candidates.size > maxUnauthenticated) {
      this.#candidates.first?.refuse('too many others came after it')
    }
    greetClient(socket, token).then(
      (proven) => {
        if (!proven) refuse('it does not know the token')
        else if (this.#candidates.delete(candidate)) {
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
    for (const { refuse } of this.#candidates.values()) refuse('the store is closing')
  }
}
