import type { Socket } from 'node:net'
import type { TLSSocket } from 'node:tls'
import {
  certificateRefusal,
  clientHandshake,
  HELLO_BYTES,
  helloOf,
  isHelloStart,
  PendingConnections,
  PROOF_BYTES,
  serverHandshake,
  type HandshakeRefusal,
} from '@tsrun/core'
import { nameEndpoint } from './addresses.ts'
import { acceptsPeer, bindingOf, SecureServer, type StoreTls } from './secure-sockets.ts'

/** The first byte of a connection of TLS. */
const TLS_HANDSHAKE = 0x16

/**
 * What the proofs are for. Those within TLS are bound to one connection, so that they cannot be relayed.
 */
function purposeOn(socket: Socket | TLSSocket): string {
  return 'exportKeyingMaterial' in socket ? `store ${bindingOf(socket)}` : 'store'
}

/**
 * The client's side: both ends prove to each other that they know the token.
 *
 * @returns why the client refuses the server; undefined when both have proven it
 */
export async function greetServer(
  socket: Socket,
  token: string,
): Promise<HandshakeRefusal | undefined> {
  const handshake = clientHandshake(token, purposeOn(socket))
  socket.write(handshake.hello)
  const answer = handshake.answer(await readExactly(socket, HELLO_BYTES))
  if ('refused' in answer) return answer.refused
  socket.write(answer.proof)
  return handshake.trusts(await readExactly(socket, PROOF_BYTES)) ? undefined : 'token'
}

/**
 * The server's side: whether the client proves the token. Nothing that it sends before is decoded.
 *
 * @param advance - called for each step that the client takes
 */
async function greetClient(socket: Socket, token: string, advance: () => void): Promise<boolean> {
  const handshake = serverHandshake(token, purposeOn(socket))
  const first = await readExactly(socket, HELLO_BYTES)
  advance()
  const hello = handshake.answer(first)
  if (hello === undefined) {
    // A client that begins with TLS learns that there is none here.
    if (first[0] === TLS_HANDSHAKE) await write(socket, helloOf('none'))
    return false
  }
  socket.write(hello)
  const { accepted, proof } = handshake.judge(await readExactly(socket, PROOF_BYTES))
  if (accepted) socket.write(proof)
  else await write(socket, proof)
  return accepted
}

/** Writes something that must be on its way before the connection is destroyed. */
async function write(socket: Socket, bytes: Uint8Array): Promise<void> {
  await new Promise((resolve) => socket.write(bytes, resolve))
}

/** The server's side of a connection that is to be encrypted; undefined for one that is not. */
async function encrypt(
  socket: Socket,
  server: SecureServer,
  tls: StoreTls,
  advance: () => void,
): Promise<TLSSocket | undefined> {
  const start = await readExactly(socket, 5)
  advance()
  if (start[0] !== TLS_HANDSHAKE) {
    if (isHelloStart(start)) await write(socket, helloOf('encrypted'))
    return undefined
  }
  socket.unshift(start)
  const secure = await server.secure(socket)
  advance()
  if (acceptsPeer(secure, tls)) return secure
  await write(secure, certificateRefusal())
  return undefined
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
  /** Encrypts the connections; undefined: they are plain. */
  readonly tls: StoreTls | undefined
  /** Milliseconds in which a connection must prove the token. */
  readonly handshakeTimeout: number
  /** Most connections of each stage of the handshake. */
  readonly maxUnauthenticated: number
  /** Called for each connection that was dropped because it did not prove the token. */
  readonly onRefused?: ((peer: string, reason: string) => void) | undefined
}

interface Candidate {
  /** Address and port. */
  readonly peer: string
  readonly close: () => void
}

/** The sockets of a server that have not proven the token yet. */
export class Admission {
  readonly #options: AdmissionOptions
  readonly #secureServer: SecureServer | undefined
  readonly #candidates: PendingConnections<Candidate>

  /** @throws an Error of OpenSSL for a certificate or key that is none */
  constructor(options: AdmissionOptions) {
    const { tls, token, maxUnauthenticated, onRefused } = options
    this.#options = options
    this.#candidates = new PendingConnections({
      limit: maxUnauthenticated,
      drop: ({ peer, close }) => {
        close()
        onRefused?.(peer, 'too many others came after it')
      },
    })
    this.#secureServer = tls && new SecureServer(tls, token)
  }

  get size(): number {
    return this.#candidates.size
  }

  /** Calls `admit` once the socket has proven the token, or destroys it; never throws. */
  receive(socket: Socket, admit: (socket: Socket) => void): void {
    const { token, tls, handshakeTimeout, onRefused } = this.#options
    const peer = nameEndpoint(socket.remoteAddress ?? 'unknown', socket.remotePort ?? 0)
    const close = (): void => {
      clearTimeout(timer)
      socket.destroy()
    }
    const refuse = (reason: string): void => {
      close()
      if (this.#candidates.delete(candidate)) onRefused?.(peer, reason)
    }
    const timer = setTimeout(refuse, handshakeTimeout, 'it stayed silent')
    const candidate = { peer, close }
    const advance = (): void => {
      this.#candidates.advance(candidate)
    }
    socket.on('error', (error) => {
      refuse(error.message)
    })
    this.#candidates.add(candidate, socket.remoteAddress ?? '')
    const greet = async (): Promise<void> => {
      const server = this.#secureServer
      const spoken = server && tls ? await encrypt(socket, server, tls, advance) : socket
      spoken?.on('error', (error: Error) => {
        refuse(error.message)
      })
      if (spoken === undefined) refuse('it is not encrypted as this store is')
      else if (!(await greetClient(spoken, token, advance))) refuse('it does not know the token')
      else if (this.#candidates.delete(candidate)) {
        clearTimeout(timer)
        admit(spoken)
      }
    }
    greet().catch((error: unknown) => {
      refuse(error instanceof Error ? error.message : String(error))
    })
  }

  close(): void {
    for (const candidate of this.#candidates.values()) {
      candidate.close()
      this.#candidates.delete(candidate)
      this.#options.onRefused?.(candidate.peer, 'the store is closing')
    }
  }
}
