import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto'

/**
 * Mutual authentication of a new connection by the job's token (HMAC-SHA256, RFC 2104). It comes before
 * anything else on the connection is decoded and consists of three messages of fixed size:
 *
 *     client hello   magic, version, client nonce
 *     server hello   magic, version, server nonce, server proof
 *     client proof
 *
 * A proof covers both nonces, so that it cannot be replayed; the role of its sender, so that it cannot
 * be reflected; and the purpose of the connection, so that it cannot be relayed to another kind of port.
 * The bytes that follow are neither signed nor encrypted.
 */
export const CLIENT_HELLO_BYTES = 40
export const SERVER_HELLO_BYTES = 72
export const CLIENT_PROOF_BYTES = 32

export const HANDSHAKE_VERSION = 1
const MAGIC = 0x4e525354 // 'TSRN', little-endian
const HEADER_BYTES = 8
const NONCE_BYTES = 32

export type HandshakeRole = 'client' | 'server'

/** What a proof covers, besides the role of its sender. */
export interface Challenge {
  /** The kind of connection, for example 'store'. Both sides must give the same text. */
  readonly purpose: string
  readonly clientNonce: Uint8Array
  readonly serverNonce: Uint8Array
}

/** Why the client refuses: the peer speaks another protocol, another version of it, or has another token. */
export type HandshakeRefusal = 'protocol' | 'version' | 'token'

export function makeNonce(): Uint8Array {
  return new Uint8Array(randomBytes(NONCE_BYTES))
}

/** The 32 bytes with which `role` proves that it knows the token. */
export function prove(token: string, role: HandshakeRole, challenge: Challenge): Uint8Array {
  const hmac = createHmac('sha256', token)
  hmac.update(`tsrun ${String(HANDSHAKE_VERSION)} ${role} ${challenge.purpose}\0`)
  hmac.update(challenge.clientNonce)
  hmac.update(challenge.serverNonce)
  return new Uint8Array(hmac.digest())
}

/** Whether `proof` is the one that `role` makes with this token. Takes the same time for any content. */
export function verify(
  token: string,
  role: HandshakeRole,
  challenge: Challenge,
  proof: Uint8Array,
): boolean {
  const expected = prove(token, role, challenge)
  return proof.byteLength === expected.byteLength && timingSafeEqual(proof, expected)
}

/**
 * The connecting side: send `hello`, then `answer` the server hello. It does no I/O and expects messages
 * of exactly the sizes above.
 */
export interface ClientHandshake {
  /** CLIENT_HELLO_BYTES long. */
  readonly hello: Uint8Array
  /** Checks the server hello. Returns the client proof to send back, or the reason to hang up. */
  answer(serverHello: Uint8Array): { proof: Uint8Array } | { refused: HandshakeRefusal }
}

/** The accepting side: `answer` the client hello, then check the client proof with `accepts`. */
export interface ServerHandshake {
  /** Returns the server hello to send back, or undefined to hang up on a peer of another protocol. */
  answer(clientHello: Uint8Array): Uint8Array | undefined
  accepts(clientProof: Uint8Array): boolean
}

export function clientHandshake(token: string, purpose: string): ClientHandshake {
  const clientNonce = makeNonce()
  return {
    hello: encodeHello(clientNonce),
    answer(serverHello) {
      if (!isHello(serverHello, SERVER_HELLO_BYTES)) return { refused: 'protocol' }
      if (versionOf(serverHello) !== HANDSHAKE_VERSION) return { refused: 'version' }
      const challenge = { purpose, clientNonce, serverNonce: nonceOf(serverHello) }
      const proof = serverHello.subarray(HEADER_BYTES + NONCE_BYTES)
      if (!verify(token, 'server', challenge, proof)) return { refused: 'token' }
      return { proof: prove(token, 'client', challenge) }
    },
  }
}

export function serverHandshake(token: string, purpose: string): ServerHandshake {
  const serverNonce = makeNonce()
  let challenge: Challenge | undefined
  return {
    answer(clientHello) {
      if (!isHello(clientHello, CLIENT_HELLO_BYTES)) return undefined
      // A client of another version learns ours from the answer and reports it to its user.
      challenge = { purpose, clientNonce: nonceOf(clientHello), serverNonce }
      return encodeHello(serverNonce, prove(token, 'server', challenge))
    },
    accepts(clientProof) {
      return challenge !== undefined && verify(token, 'client', challenge, clientProof)
    },
  }
}

function encodeHello(nonce: Uint8Array, proof: Uint8Array = new Uint8Array(0)): Uint8Array {
  const bytes = new Uint8Array(HEADER_BYTES + NONCE_BYTES + proof.byteLength)
  const view = new DataView(bytes.buffer)
  view.setUint32(0, MAGIC, true)
  view.setUint16(4, HANDSHAKE_VERSION, true)
  bytes.set(nonce, HEADER_BYTES)
  bytes.set(proof, HEADER_BYTES + NONCE_BYTES)
  return bytes
}

function isHello(bytes: Uint8Array, length: number): boolean {
  return bytes.byteLength === length && viewOf(bytes).getUint32(0, true) === MAGIC
}

function versionOf(hello: Uint8Array): number {
  return viewOf(hello).getUint16(4, true)
}

/** A copy, because the caller may reuse the buffer of the message. */
function nonceOf(hello: Uint8Array): Uint8Array {
  return new Uint8Array(hello.subarray(HEADER_BYTES, HEADER_BYTES + NONCE_BYTES))
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}
