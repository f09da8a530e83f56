import {
  createPublicKey,
  diffieHellman,
  generateKeyPairSync,
  hkdfSync,
  type KeyObject,
} from 'node:crypto'

/** Bytes of a key of AES-128. */
const KEY_BYTES = 16

/** One key for each direction of a connection. */
export interface SessionKeys {
  readonly sending: Uint8Array
  readonly receiving: Uint8Array
}

/**
 * A key pair of X25519 (RFC 7748) for one connection: its keys cannot be derived from a token that leaks
 * later.
 */
export interface KeyPair {
  /** 32 bytes. */
  readonly publicKey: Uint8Array
  /** The secret that only the two ends know. @throws when these bytes are no public key */
  agree(publicKey: Uint8Array): Uint8Array
}

/** What precedes the 32 bytes of a public key of X25519 in the format SPKI (RFC 8410). */
const SPKI_PREFIX = Buffer.from('302a300506032b656e032100', 'hex')

export function makeKeyPair(): KeyPair {
  const { publicKey, privateKey } = generateKeyPairSync('x25519')
  const spki = publicKey.export({ format: 'der', type: 'spki' })
  return {
    publicKey: new Uint8Array(spki.subarray(SPKI_PREFIX.length)),
    agree: (theirs) => diffieHellman({ privateKey, publicKey: publicKeyOf(theirs) }),
  }
}

function publicKeyOf(bytes: Uint8Array): KeyObject {
  const key = Buffer.concat([SPKI_PREFIX, bytes])
  return createPublicKey({ key, format: 'der', type: 'spki' })
}

/** The keys of both directions, as the side that has connected uses them (HKDF-SHA256, RFC 5869). */
export function deriveKeys(secret: Uint8Array, salt: Uint8Array, context: string): SessionKeys {
  const expand = (direction: string): Uint8Array => {
    const info = `tsrun ${direction}\0${context}`
    return new Uint8Array(hkdfSync('sha256', secret, salt, info, KEY_BYTES))
  }
  return { sending: expand('client to server'), receiving: expand('server to client') }
}

/** The key that follows `key` after many records; `key` does not follow from it. */
export function nextKey(key: Uint8Array): Uint8Array {
  return new Uint8Array(hkdfSync('sha256', key, new Uint8Array(), 'tsrun next key', KEY_BYTES))
}
