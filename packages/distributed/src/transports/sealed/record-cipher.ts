import { createCipheriv, createDecipheriv } from 'node:crypto'
import { tsrError } from '@tsrun/core'
import { addressOf, AesGcm, hasOpenSsl, isAvailable, TAG_BYTES } from '@tsrun/native'

/*
 * A record holds a piece of the stream: its length (4 bytes, little-endian), the piece, and a tag
 * of 16 bytes. The tag covers the length, the piece, and the number of the record in its direction.
 * A peer thus notices records that were changed, replayed, dropped or reordered.
 */

export const HEADER_BYTES = 4
/** Number of bytes in a record besides the piece of the stream. */
export const OVERHEAD_BYTES = HEADER_BYTES + TAG_BYTES

/** A region of memory, and its address for native code. */
export interface Region {
  readonly bytes: Uint8Array
  /** Address of the first byte; 0 without native code. */
  readonly address: number
}

export function regionOf(bytes: Uint8Array): Region {
  return { bytes, address: isAvailable().available ? addressOf(bytes) : 0 }
}

/** Seals or opens the records of one direction. Each direction has its own counter. */
export interface RecordCipher {
  /**
   * Encrypts `length` bytes of `from` into a record, whose header is at offset `at` of `to`. Also
   * writes the tag.
   */
  seal(counter: number, from: Region, piece: number, length: number, to: Region, at: number): void
  /**
   * Decrypts the piece of a record, whose header is at offset `at` of `from`.
   *
   * @returns false if the record was not sealed by the peer with this counter; the contents of `to`
   * are then undefined
   */
  open(
    counter: number,
    from: Region,
    at: number,
    length: number,
    to: Region,
    piece: number,
  ): boolean
  rekey(key: Uint8Array): void
  close(): void
}

/** Creates the fastest available cipher. All ciphers produce the same records. */
export function createRecordCipher(direction: 'seal' | 'open', key: Uint8Array): RecordCipher {
  return isAvailable().available && hasOpenSsl() ? nativeCipher(direction, key) : nodeCipher(key)
}

/** Encrypts and decrypts in place, by native calls of OpenSSL. */
export function nativeCipher(direction: 'seal' | 'open', key: Uint8Array): RecordCipher {
  const gcm = new AesGcm(direction, key)
  return {
    seal: (counter, from, piece, length, to, at) => {
      const header = to.address + at
      const body = header + HEADER_BYTES
      const text = from.address + piece
      const sealed = gcm.run(counter, header, text, length, body, body + length)
      if (!sealed) throw tsrError('ERR_TSR_INTERNAL', { what: 'OpenSSL does not seal a record' })
    },
    open: (counter, from, at, length, to, piece) => {
      const header = from.address + at
      const body = header + HEADER_BYTES
      return gcm.run(counter, header, body, length, to.address + piece, body + length)
    },
    rekey: (next) => {
      gcm.rekey(next)
    },
    close: () => {
      gcm.close()
    },
  }
}

/** Uses the ciphers of node:crypto, which return results in new memory. */
export function nodeCipher(first: Uint8Array): RecordCipher {
  let key = first
  return {
    seal: (counter, { bytes }, piece, length, to, at) => {
      const cipher = createCipheriv('aes-128-gcm', key, nonceOf(counter))
      const body = at + HEADER_BYTES
      cipher.setAAD(to.bytes.subarray(at, body))
      to.bytes.set(cipher.update(bytes.subarray(piece, piece + length)), body)
      cipher.final()
      to.bytes.set(cipher.getAuthTag(), body + length)
    },
    open: (counter, { bytes }, at, length, to, piece) => {
      const nonce = nonceOf(counter)
      const cipher = createDecipheriv('aes-128-gcm', key, nonce, { authTagLength: TAG_BYTES })
      const body = at + HEADER_BYTES
      const end = body + length
      cipher.setAuthTag(bytes.subarray(end, end + TAG_BYTES))
      cipher.setAAD(bytes.subarray(at, body))
      const text = cipher.update(bytes.subarray(body, end))
      try {
        cipher.final()
      } catch {
        return false
      }
      to.bytes.set(text, piece)
      return true
    },
    rekey: (next) => {
      key = next
    },
    close: () => {
      key = new Uint8Array()
    },
  }
}

/** Returns the same nonce as `AesGcm`: 4 zero bytes, then the counter, big-endian. */
function nonceOf(counter: number): Uint8Array {
  const nonce = new Uint8Array(12)
  new DataView(nonce.buffer).setBigUint64(4, BigInt(counter))
  return nonce
}
