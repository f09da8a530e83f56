import { createCipheriv, createDecipheriv, type CipherGCM, type DecipherGCM } from 'node:crypto'
import type { Protection } from '@tsrun/core'
import { AesGcm, addressOf, hasOpenSsl, isAvailable, TAG_BYTES } from '@tsrun/native'

/*
 * A record carries a piece of the stream: its length (4 bytes, little-endian), the piece, and a tag of
 * 16 bytes. The tag covers all of it and the number of the record in its direction, so that records can
 * be neither changed, nor replayed, left out or put in another order.
 */

export const HEADER_BYTES = 4
/** What a record has besides its piece. */
export const OVERHEAD_BYTES = HEADER_BYTES + TAG_BYTES

/** How records are protected, where they are. */
export type SealedProtection = Exclude<Protection, 'none'>

/** Memory with its address, where native code can read it. */
export interface Region {
  readonly bytes: Uint8Array
  /** Of the first byte; 0 without native code. */
  readonly address: number
}

export function regionOf(bytes: Uint8Array): Region {
  return { bytes, address: isAvailable().available ? addressOf(bytes) : 0 }
}

/** Seals or opens the records of one direction, of which each has a counter of its own. */
export interface RecordCipher {
  /** Writes the tag and the piece of `length` bytes of `from` into a record whose header is at `at` of `to`. */
  seal(counter: number, from: Region, piece: number, length: number, to: Region, at: number): void
  /**
   * Reads the piece of the record whose header is at `at` of `from`.
   *
   * @returns false when it is not the record that was sealed; `to` then holds nothing of use
   */
  open(counter: number, from: Region, at: number, length: number, to: Region, piece: number): boolean
  rekey(key: Uint8Array): void
  close(): void
}

/** The fastest cipher that there is. All of them make the same records. */
export function createRecordCipher(
  direction: 'seal' | 'open',
  key: Uint8Array,
  protection: SealedProtection,
): RecordCipher {
  return isAvailable().available && hasOpenSsl()
    ? new NativeCipher(direction, key, protection)
    : new NodeCipher(key, protection)
}

/** In place, by OpenSSL through native calls. */
export class NativeCipher implements RecordCipher {
  readonly #gcm: AesGcm
  readonly #encrypts: boolean

  constructor(direction: 'seal' | 'open', key: Uint8Array, protection: SealedProtection) {
    this.#gcm = new AesGcm(direction, key)
    this.#encrypts = protection === 'encrypted'
  }

  seal(
    counter: number,
    from: Region,
    piece: number,
    length: number,
    to: Region,
    at: number,
  ): void {
    const header = { address: to.address + at, length: HEADER_BYTES }
    const body = to.address + at + HEADER_BYTES
    const tag = body + length
    if (this.#encrypts) {
      this.#gcm.run(counter, [header], { address: from.address + piece, length }, body, tag)
      return
    }
    copy(from, piece, length, to, at + HEADER_BYTES)
    this.#gcm.run(counter, [{ ...header, length: HEADER_BYTES + length }], NOTHING, 0, tag)
  }

  open(
    counter: number,
    from: Region,
    at: number,
    length: number,
    to: Region,
    piece: number,
  ): boolean {
    const header = { address: from.address + at, length: HEADER_BYTES }
    const body = header.address + HEADER_BYTES
    const tag = body + length
    if (this.#encrypts) {
      return this.#gcm.run(
        counter,
        [header],
        { address: body, length },
        to.address + piece,
        tag,
      )
    }
    const whole = { ...header, length: HEADER_BYTES + length }
    if (!this.#gcm.run(counter, [whole], NOTHING, 0, tag)) return false
    copy(from, at + HEADER_BYTES, length, to, piece)
    return true
  }

  rekey(key: Uint8Array): void {
    this.#gcm.rekey(key)
  }

  close(): void {
    this.#gcm.close()
  }
}

const NOTHING = { address: 0, length: 0 }

/** By node:crypto, which gives the results in memory of its own. */
export class NodeCipher implements RecordCipher {
  #key: Uint8Array
  readonly #encrypts: boolean

  constructor(key: Uint8Array, protection: SealedProtection) {
    this.#key = key
    this.#encrypts = protection === 'encrypted'
  }

  seal(
    counter: number,
    from: Region,
    piece: number,
    length: number,
    to: Region,
    at: number,
  ): void {
    const cipher = createCipheriv('aes-256-gcm', this.#key, nonceOf(counter))
    const body = at + HEADER_BYTES
    if (!this.#encrypts) copy(from, piece, length, to, body)
    this.#cover(cipher, to, at, length)
    if (this.#encrypts) to.bytes.set(cipher.update(from.bytes.subarray(piece, piece + length)), body)
    cipher.final()
    to.bytes.set(cipher.getAuthTag(), body + length)
  }

  open(
    counter: number,
    from: Region,
    at: number,
    length: number,
    to: Region,
    piece: number,
  ): boolean {
    const decipher = createDecipheriv('aes-256-gcm', this.#key, nonceOf(counter), {
      authTagLength: TAG_BYTES,
    })
    const body = at + HEADER_BYTES
    decipher.setAuthTag(from.bytes.subarray(body + length, body + length + TAG_BYTES))
    this.#cover(decipher, from, at, length)
    const text = this.#encrypts
      ? decipher.update(from.bytes.subarray(body, body + length))
      : from.bytes.subarray(body, body + length)
    try {
      decipher.final()
    } catch {
      return false
    }
    to.bytes.set(text, piece)
    return true
  }

  rekey(key: Uint8Array): void {
    this.#key = key
  }

  close(): void {
    this.#key = new Uint8Array()
  }

  /** What the tag covers besides what is encrypted. */
  #cover(cipher: CipherGCM | DecipherGCM, { bytes }: Region, at: number, length: number): void {
    const covered = HEADER_BYTES + (this.#encrypts ? 0 : length)
    cipher.setAAD(bytes.subarray(at, at + covered))
  }
}

function copy(from: Region, at: number, length: number, to: Region, place: number): void {
  to.bytes.set(from.bytes.subarray(at, at + length), place)
}

/** As `AesGcm` does: 4 bytes of zeros, then the counter, big-endian. */
function nonceOf(counter: number): Uint8Array {
  const nonce = new Uint8Array(12)
  new DataView(nonce.buffer).setBigUint64(4, BigInt(counter))
  return nonce
}
