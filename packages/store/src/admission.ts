import type { Socket } from 'node:net'
import type { TLSSocket } from 'node:tls'
import {
  certificateRefusal,
  clientHandshake,
  HELLO_BYTES,
  HELLO_START_BYTES,
  helloOf,
  isHelloStart,
  messageOf,
  PendingConnections,
  PROOF_BYTES,
  serverHandshake,
  type HandshakeRefusal,
} from '@tsrun/core'
import { nameEndpoint } from './addresses.ts'
import { readBytes } from './connection.ts'
import { acceptsPeer, bindingOf, createSecureServer, type StoreTls } from './secure-sockets.ts'

/** First byte of a TLS connection. */
const TLS_HANDSHAKE = 0x16

/** In TLS, the proofs include keying material of the connection, so no other connection can reuse them. */
function purposeOn(socket: Socket | TLSSocket) {
  return 'exportKeyingMaterial' in socket ? `store ${bindingOf(socket)}` : 'store'
}

/** Authenticates both ends by the token. If the client rejects the server, returns the reason. */
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

/** Returns whether a client knows the token. Decodes only the handshake of the client. */
async function greetClient(socket: Socket, token: string, advance: () => void): Promise<boolean> {
  const handshake = serverHandshake(token, purposeOn(socket))
  const start = await readExactly(socket, HELLO_START_BYTES)
  if (isHelloStart(start)) advance()
  const rest = await readExactly(socket, HELLO_BYTES - HELLO_START_BYTES)
  advance()
  const first = Buffer.concat([start, rest])
  const hello = handshake.answer(first)
  if (hello === undefined) {
    // If the client starts TLS, tell it that this server does not encrypt.
    if (first[0] === TLS_HANDSHAKE) await write(socket, helloOf('none'))
    return false
  }
  socket.write(hello)
  const { accepted, proof } = handshake.judge(await readExactly(socket, PROOF_BYTES))
  if (accepted) socket.write(proof)
  else await write(socket, proof)
  return accepted
}

/** Waits until the kernel has the written bytes, because the caller destroys the connection next. */
async function write(socket: Socket, bytes: Uint8Array) {
  await new Promise((resolve) => socket.write(bytes, resolve))
}

/** Starts TLS. Returns undefined if the client does not use TLS, or if its certificate is rejected. */
async function encrypt(
  socket: Socket,
  secure: ReturnType<typeof createSecureServer>,
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
  const encrypted = await secure(socket)
  advance()
  if (acceptsPeer(encrypted, tls)) return encrypted
  await write(encrypted, certificateRefusal())
  return undefined
}

/** Reads `length` bytes and leaves later bytes in the socket. Rejects if the socket ends first. */
async function readExactly(socket: Socket, length: number): Promise<Uint8Array> {
  return await new Promise((resolve, reject) => {
    const read = () => {
      const bytes = readBytes(socket, length)
      if (bytes === undefined) return
      finish()
      resolve(bytes)
    }
    const fail = (error?: Error) => {
      finish()
      reject(error ?? new Error('the connection ended during the handshake'))
    }
    const end = () => {
      fail()
    }
    const finish = () => {
      socket.off('readable', read).off('error', fail).off('end', end).off('close', end)
    }
    socket.on('readable', read).on('error', fail).on('end', end).on('close', end)
    read()
  })
}

export interface AdmissionOptions {
  readonly token: string
  /** Encryption of the connections; undefined for none. */
  readonly tls: StoreTls | undefined
  /** Milliseconds in which a connection must prove the token. */
  readonly handshakeTimeout: number
  readonly maxUnauthenticated: number
  /** Called for each connection that is dropped because it does not prove the token. */
  readonly onRefused?: ((peer: string, reason: string) => void) | undefined
}

interface Candidate {
  /** Address and port of the peer. */
  readonly peer: string
  readonly close: () => void
}

/** Authenticates and limits new sockets of a server. @throws an Error of OpenSSL for a bad certificate */
export function createAdmission(options: AdmissionOptions) {
  const { token, tls, handshakeTimeout, maxUnauthenticated, onRefused } = options
  const candidates = new PendingConnections<Candidate>({
    limit: maxUnauthenticated,
    drop: ({ peer, close }) => {
      close()
      onRefused?.(peer, 'too many others came after it')
    },
  })
  const secure = tls && createSecureServer(tls, token)
  return {
    get size() {
      return candidates.size
    },
    /** Calls `admit` once the socket has proven the token, or destroys it; never throws. */
    receive(socket: Socket, admit: (socket: Socket) => void) {
      const peer = nameEndpoint(socket.remoteAddress ?? 'unknown', socket.remotePort ?? 0)
      const close = () => {
        clearTimeout(timer)
        socket.destroy()
      }
      const refuse = (reason: string) => {
        close()
        if (candidates.delete(candidate)) onRefused?.(peer, reason)
      }
      const timer = setTimeout(refuse, handshakeTimeout, 'it stayed silent')
      const candidate = { peer, close }
      const advance = () => {
        candidates.advance(candidate)
      }
      socket.on('error', (error) => {
        refuse(error.message)
      })
      candidates.add(candidate, socket.remoteAddress ?? '')
      const greet = async () => {
        const spoken = secure ? await encrypt(socket, secure, tls, advance) : socket
        spoken?.on('error', (error: Error) => {
          refuse(error.message)
        })
        if (spoken === undefined) refuse('it is not encrypted as this store is')
        else if (!(await greetClient(spoken, token, advance))) refuse('it does not know the token')
        else if (candidates.delete(candidate)) {
          clearTimeout(timer)
          admit(spoken)
        }
      }
      greet().catch((error: unknown) => {
        refuse(messageOf(error))
      })
    },
    close() {
      for (const candidate of candidates.values()) {
        candidate.close()
        candidates.delete(candidate)
        onRefused?.(candidate.peer, 'the store is closing')
      }
    },
  }
}
