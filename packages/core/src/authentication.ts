import { createHmac, randomBytes, timingSafeEqual } from 'node:crypto'

/**
 * Mutual authentication of a new connection by the job's token (HMAC-SHA256, RFC 2104). It comes before
 * anything else on the connection is decoded and consists of four messages of fixed size:
 *
 *     client hello   magic, version, client nonce
 *     server hello   magic, version, server nonce
 *     client proof
 *     server proof   zeros when the server refuses the client
 *
 * The client proves first: who only connects gets nothing from which the token could be guessed offline.
 * A proof covers both nonces, so that it cannot be replayed; the role of its sender, so that it cannot
 * be reflected; the purpose of the connection, so that it cannot be relayed to another kind of port or
 * another job; and the parties, so that it cannot be relayed to another rank. The bytes that follow are
 * neither signed nor encrypted.
 */
export const HELLO_BYTES = 40
export const PROOF_BYTES = 32

export const HANDSHAKE_VERSION = 2
const MAGIC = 0x4e525354 // 'TSRN', little-endian
const HEADER_BYTES = 8
const NONCE_BYTES = HELLO_BYTES - HEADER_BYTES

export type HandshakeRole = 'client' | 'server'

/** What a proof covers, besides the role of its sender. */
export interface Challenge {
  /** The kind of connection, for example 'store'. Both sides must give the same text. */
  readonly purpose: string
  /** Who connects to whom, for example '2 to 1'; default: ''. Both sides must give the same text. */
  readonly parties?: string
  readonly clientNonce: Uint8Array
  readonly serverNonce: Uint8Array
}

/** Why the client refuses: the peer speaks another protocol, another version of it, or has another token. */
export type HandshakeRefusal = 'protocol' | 'version' | 'token'

/** What a token has to be, for messages. */
export const TOKEN_EXPECTED =
  'a hexadecimal secret of at least 32 digits, as openssl rand -hex 32 makes it'

/** Whether a token has 128 bits or more, and is not the zeros of a placeholder. */
export function isStrongToken(token: string): boolean {
  return /^([0-9a-f]{2}){16,}$/i.test(token) && !/^0+$/.test(token)
}

export function makeNonce(): Uint8Array {
  return new Uint8Array(randomBytes(NONCE_BYTES))
}

/** The 32 bytes with which `role` proves that it knows the token. */
export function prove(token: string, role: HandshakeRole, challenge: Challenge): Uint8Array {
  const hmac = createHmac('sha256', token)
  const { purpose, parties = '' } = challenge
  hmac.update(`tsrun ${String(HANDSHAKE_VERSION)} ${role} ${purpose}\0${parties}\0`)
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
 * The connecting side: send `hello`, then `answer` the server hello, then ask whether it `trusts` the
 * server proof. It does no I/O and expects messages of exactly the sizes above.
 */
export interface ClientHandshake {
  readonly hello: Uint8Array
  /** Checks the server hello. Returns the client proof to send back, or the reason to hang up. */
  answer(serverHello: Uint8Array): { proof: Uint8Array } | { refused: HandshakeRefusal }
  /** Whether the server knows the token, too. Of an unequal token the server proof consists of zeros. */
  trusts(serverProof: Uint8Array): boolean
}

/** The accepting side: `answer` the client hello, then `judge` the client proof. */
export interface ServerHandshake {
  /** Returns the server hello to send back, or undefined to hang up on a peer of another protocol. */
  answer(clientHello: Uint8Array): Uint8Array | undefined
  /**
   * Checks the client proof, and returns the server proof to send back in any case.
   *
   * @param parties - who connects to whom, as the client says
   */
  judge(clientProof: Uint8Array, parties?: string): { accepted: boolean; proof: Uint8Array }
}

export function clientHandshake(token: string, purpose: string, parties = ''): ClientHandshake {
  const clientNonce = makeNonce()
  let challenge: Challenge | undefined
  return {
    hello: encodeHello(clientNonce),
    answer(serverHello) {
      if (!isHello(serverHello)) return { refused: 'protocol' }
      if (versionOf(serverHello) !== HANDSHAKE_VERSION) return { refused: 'version' }
      challenge = { purpose, parties, clientNonce, serverNonce: nonceOf(serverHello) }
      return { proof: prove(token, 'client', challenge) }
    },
    trusts(serverProof) {
      return challenge !== undefined && verify(token, 'server', challenge, serverProof)
    },
  }
}

export function serverHandshake(token: string, purpose: string): ServerHandshake {
  const serverNonce = makeNonce()
  let clientNonce: Uint8Array | undefined
  return {
    answer(clientHello) {
      if (!isHello(clientHello)) return undefined
      // A client of another version learns ours from the answer and reports it to its user.
      clientNonce = nonceOf(clientHello)
      return encodeHello(serverNonce)
    },
    judge(clientProof, parties = '') {
      const challenge = clientNonce && { purpose, parties, clientNonce, serverNonce }
      const accepted = challenge !== undefined && verify(token, 'client', challenge, clientProof)
      const proof = accepted ? prove(token, 'server', challenge) : new Uint8Array(PROOF_BYTES)
      return { accepted, proof }
    },
  }
}

function encodeHello(nonce: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(HELLO_BYTES)
  const view = new DataView(bytes.buffer)
  view.setUint32(0, MAGIC, true)
  view.setUint16(4, HANDSHAKE_VERSION, true)
  bytes.set(nonce, HEADER_BYTES)
  return bytes
}

function isHello(bytes: Uint8Array): boolean {
  return bytes.byteLength === HELLO_BYTES && viewOf(bytes).getUint32(0, true) === MAGIC
}

function versionOf(hello: Uint8Array): number {
  return viewOf(hello).getUint16(4, true)
}

/** A copy, because the caller may reuse the buffer of the message. */
function nonceOf(hello: Uint8Array): Uint8Array {
  return new Uint8Array(hello.subarray(HEADER_BYTES))
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}
