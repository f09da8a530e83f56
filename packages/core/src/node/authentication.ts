import {
  createHmac,
  createPublicKey,
  diffieHellman,
  generateKeyPairSync,
  hkdfSync,
  randomBytes,
  timingSafeEqual,
  type KeyObject,
} from 'node:crypto'
import { protectionCode, type Protection } from './protection.ts'

/**
 * Mutual authentication of a new connection by the job's token (HMAC-SHA256, RFC 2104). Nothing
 * else on the connection is decoded before the handshake has succeeded. The handshake has four
 * messages of fixed size:
 *
 *     client hello   magic, version, protection, client nonce
 *     server hello   magic, version, protection, server nonce
 *     client proof
 *     server proof   zeros when the server refuses the client
 *
 * The client proves first, so that a peer that merely connects gets no data for guessing the token
 * offline. A proof covers both nonces against replay, and the role of its sender against
 * reflection. A proof also covers the purpose and the parties, so that it cannot be relayed to
 * another port, job or rank.
 *
 * If the connection is encrypted, the nonces are ephemeral X25519 public keys, from which both sides
 * derive the keys of the connection.
 */
export const HELLO_BYTES = 40
/** Length in bytes of the start of a hello, before its nonce. */
export const HELLO_START_BYTES = 8
/** Length of a proof in bytes. */
export const PROOF_BYTES = 32

const HANDSHAKE_VERSION = 3
const MAGIC = 0x4e525354 // 'TSRN', little-endian
/** The protection code of a server hello that rejects the client's certificate. */
const CERTIFICATE_REFUSED = 0xff
const NONCE_BYTES = HELLO_BYTES - HELLO_START_BYTES

/** The side of a handshake: the client connects, the server accepts. */
export type HandshakeRole = 'client' | 'server'

/** The data that a proof covers, in addition to the role of its sender. */
export interface Challenge {
  /** The kind of connection, for example 'store'. Both sides must use the same text. */
  readonly purpose: string
  /** The client and server ranks, for example '2 to 1'; default: ''. Both sides must use the same text. */
  readonly parties?: string
  /** How the connection is protected after the handshake; default: 'none'. Both sides must agree. */
  readonly protection?: Protection
  readonly clientNonce: Uint8Array
  readonly serverNonce: Uint8Array
}

/** The reason for a client to end the handshake. `certificate`: the server rejects its certificate. */
export type HandshakeRefusal = 'protocol' | 'version' | 'protection' | 'certificate' | 'token'

export function makeNonce(): Uint8Array {
  return new Uint8Array(randomBytes(NONCE_BYTES))
}

/** Returns the 32 bytes that prove that `role` knows the token. */
export function prove(token: string, role: HandshakeRole, challenge: Challenge): Uint8Array {
  const hmac = createHmac('sha256', token)
  const { purpose, parties = '', protection = 'none' } = challenge
  hmac.update(`tsrun ${HANDSHAKE_VERSION} ${role} ${purpose}\0${parties}\0${protection}\0`)
  hmac.update(challenge.clientNonce)
  hmac.update(challenge.serverNonce)
  return new Uint8Array(hmac.digest())
}

/** Whether `proof` proves that `role` knows the token. Takes constant time. */
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
 * Starts the connecting side of a handshake. The caller sends `hello`, passes the server hello to
 * `answer`, and then passes the server proof to `trusts`. No function does I/O. Messages must have
 * exactly the fixed sizes.
 *
 * @param token - the job's token, which is never sent
 * @param purpose - the kind of connection, the same on both sides
 * @param parties - the client and server ranks, for example '2 to 1'
 */
export function clientHandshake(
  token: string,
  purpose: string,
  parties = '',
  protection: Protection = 'none',
) {
  const pair = protection === 'none' ? undefined : makeKeyPair()
  const clientNonce = pair?.publicKey ?? makeNonce()
  let challenge: Challenge | undefined
  return {
    hello: encodeHello(clientNonce, protectionCode(protection)),
    /** Checks the server hello. Returns the client proof to send, or the reason to disconnect. */
    answer(serverHello: Uint8Array): { proof: Uint8Array } | { refused: HandshakeRefusal } {
      if (!isHello(serverHello)) return { refused: 'protocol' }
      if (versionOf(serverHello) !== HANDSHAKE_VERSION) return { refused: 'version' }
      if (codeOf(serverHello) === CERTIFICATE_REFUSED) return { refused: 'certificate' }
      if (codeOf(serverHello) !== protectionCode(protection)) return { refused: 'protection' }
      challenge = { purpose, parties, protection, clientNonce, serverNonce: nonceOf(serverHello) }
      return { proof: prove(token, 'client', challenge) }
    },
    /** Whether the server knows the token. If the tokens differ, the server proof is all zeros. */
    trusts: (serverProof: Uint8Array) =>
      challenge !== undefined && verify(token, 'server', challenge, serverProof),
    /** The keys of the connection, once the server is trusted; undefined without protection. */
    keys: () => challenge && sessionKeys(pair, 'client', token, challenge),
  }
}

/**
 * Starts the accepting side of a handshake. The caller passes the client hello to `answer`, then the
 * client proof to `judge`.
 *
 * @param token - the job's token, which is never sent
 * @param purpose - the kind of connection, the same on both sides
 */
export function serverHandshake(token: string, purpose: string, protection: Protection = 'none') {
  let pair: KeyPair | undefined
  let challenge: Challenge | undefined
  return {
    /** Returns the server hello to send, or undefined to disconnect a peer of another protocol. */
    answer(clientHello: Uint8Array) {
      if (!isHello(clientHello)) return undefined
      // Tell a client of another version or protection what this server uses, so that the client
      // can report it.
      if (codeOf(clientHello) !== protectionCode(protection)) return helloOf(protection)
      pair = protection === 'none' ? undefined : makeKeyPair()
      const serverNonce = pair?.publicKey ?? makeNonce()
      challenge = { purpose, protection, clientNonce: nonceOf(clientHello), serverNonce }
      return encodeHello(serverNonce, protectionCode(protection))
    },
    /**
     * Checks the client proof. Returns the server proof, which the caller sends even if it rejects
     * the client.
     *
     * @param parties - the client and server ranks, according to the client
     */
    judge(clientProof: Uint8Array, parties = '') {
      challenge &&= { ...challenge, parties }
      const accepted = challenge !== undefined && verify(token, 'client', challenge, clientProof)
      const proof = accepted ? prove(token, 'server', challenge!) : new Uint8Array(PROOF_BYTES)
      return { accepted, proof }
    },
    /** The keys of the connection, once the client is accepted; undefined without protection. */
    keys: () => challenge && sessionKeys(pair, 'server', token, challenge),
  }
}

/** Returns the server hello for a client with another protection. */
export function helloOf(protection: Protection): Uint8Array {
  return encodeHello(makeNonce(), protectionCode(protection))
}

/** Returns the server hello that rejects the client's certificate. */
export function certificateRefusal(): Uint8Array {
  return encodeHello(makeNonce(), CERTIFICATE_REFUSED)
}

function sessionKeys(
  pair: KeyPair | undefined,
  role: HandshakeRole,
  token: string,
  { purpose, parties = '', clientNonce, serverNonce }: Challenge,
): SessionKeys | undefined {
  if (pair === undefined) return undefined
  const secret = pair.agree(role === 'client' ? serverNonce : clientNonce)
  const salt = Buffer.concat([clientNonce, serverNonce])
  const keys = deriveKeys(
    Buffer.concat([secret, Buffer.from(token)]),
    salt,
    `${purpose}\0${parties}`,
  )
  return role === 'client' ? keys : { sending: keys.receiving, receiving: keys.sending }
}

function encodeHello(nonce: Uint8Array, code: number) {
  const bytes = new Uint8Array(HELLO_BYTES)
  const view = new DataView(bytes.buffer)
  view.setUint32(0, MAGIC, true)
  view.setUint16(4, HANDSHAKE_VERSION, true)
  view.setUint16(6, code, true)
  bytes.set(nonce, HELLO_START_BYTES)
  return bytes
}

/** Whether the given bytes start with the magic number of a hello. */
export function isHelloStart(bytes: Uint8Array): boolean {
  return bytes.byteLength >= 4 && viewOf(bytes).getUint32(0, true) === MAGIC
}

function isHello(bytes: Uint8Array) {
  return bytes.byteLength === HELLO_BYTES && isHelloStart(bytes)
}

function versionOf(hello: Uint8Array) {
  return viewOf(hello).getUint16(4, true)
}

function codeOf(hello: Uint8Array) {
  return viewOf(hello).getUint16(6, true)
}

/** Copies the nonce, because the caller may reuse the buffer. */
function nonceOf(hello: Uint8Array) {
  return new Uint8Array(hello.subarray(HELLO_START_BYTES))
}

function viewOf(bytes: Uint8Array): DataView {
  return new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}

const KEY_BYTES = 16

/** One key for each direction of a connection. */
export interface SessionKeys {
  readonly sending: Uint8Array
  readonly receiving: Uint8Array
}

type KeyPair = ReturnType<typeof makeKeyPair>

/** The bytes before an X25519 public key in SPKI format (RFC 8410). */
const SPKI_PREFIX = Buffer.from('302a300506032b656e032100', 'hex')

/** Makes ephemeral keys (X25519, RFC 7748): recorded traffic stays unreadable if the token leaks later. */
function makeKeyPair() {
  const { publicKey, privateKey } = generateKeyPairSync('x25519')
  const spki = publicKey.export({ format: 'der', type: 'spki' })
  return {
    /** 32 bytes. */
    publicKey: new Uint8Array(spki.subarray(SPKI_PREFIX.length)),
    /** Computes the shared secret. Throws an Error if the bytes are not a public key. */
    agree: (theirs: Uint8Array) => diffieHellman({ privateKey, publicKey: publicKeyOf(theirs) }),
  }
}

function publicKeyOf(bytes: Uint8Array): KeyObject {
  const key = Buffer.concat([SPKI_PREFIX, bytes])
  return createPublicKey({ key, format: 'der', type: 'spki' })
}

/** Derives the keys of both directions (HKDF-SHA256, RFC 5869), named from the client's view. */
function deriveKeys(secret: Uint8Array, salt: Uint8Array, context: string): SessionKeys {
  const expand = (direction: string) => {
    const info = `tsrun ${direction}\0${context}`
    return new Uint8Array(hkdfSync('sha256', secret, salt, info, KEY_BYTES))
  }
  return { sending: expand('client to server'), receiving: expand('server to client') }
}

/**
 * Derives the key that replaces `key` after many records. The new key does not reveal the old one.
 */
export function nextKey(key: Uint8Array): Uint8Array {
  return new Uint8Array(hkdfSync('sha256', key, new Uint8Array(), 'tsrun next key', KEY_BYTES))
}
