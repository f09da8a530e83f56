import {
  createPublicKey,
  diffieHellman,
  generateKeyPairSync,
  hkdfSync,
  type KeyObject,
} from 'node:crypto'

const KEY_BYTES = 16

/** One key for each direction of a connection. */
export interface SessionKeys {
  readonly sending: Uint8Array
  readonly receiving: Uint8Array
}

export type KeyPair = ReturnType<typeof makeKeyPair>

/** The bytes before an X25519 public key in SPKI format (RFC 8410). */
const SPKI_PREFIX = Buffer.from('302a300506032b656e032100', 'hex')

/**
 * Makes an ephemeral X25519 key pair (RFC 7748) for one connection. If the token leaks later,
 * recorded traffic of the connection stays unreadable.
 */
export function makeKeyPair() {
  const { publicKey, privateKey } = generateKeyPairSync('x25519')
  const spki = publicKey.export({ format: 'der', type: 'spki' })
  return {
    /** 32 bytes. */
    publicKey: new Uint8Array(spki.subarray(SPKI_PREFIX.length)),
    /**
     * Computes the secret that both ends share.
     * @throws an Error if the bytes are not a public key
     */
    agree: (theirs: Uint8Array) => diffieHellman({ privateKey, publicKey: publicKeyOf(theirs) }),
  }
}

function publicKeyOf(bytes: Uint8Array): KeyObject {
  const key = Buffer.concat([SPKI_PREFIX, bytes])
  return createPublicKey({ key, format: 'der', type: 'spki' })
}

/**
 * Derives the keys of both directions (HKDF-SHA256, RFC 5869). The result is from the client's
 * view.
 */
export function deriveKeys(secret: Uint8Array, salt: Uint8Array, context: string): SessionKeys {
  const expand = (direction: string): Uint8Array => {
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
