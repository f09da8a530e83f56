import { createCipheriv, createDecipheriv } from 'node:crypto'
import { nextKey, tsrError, type SessionKeys } from '@tsrun/core'
import { addressOf, hasOpenSsl, isAvailable, openAesGcm, TAG_BYTES } from '@tsrun/native'
import { CLOSED } from './transport.ts'

/*
 * A record holds a piece of the stream: its length (4 bytes, little-endian), the piece, and a tag
 * of 16 bytes. The tag covers the length, the piece, and the number of the record in its direction.
 * A peer thus notices records that were changed, replayed, dropped or reordered.
 */

const HEADER_BYTES = 4
/** Total size in bytes of the header and the tag of a record. */
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
  /** Encrypts `length` bytes into a record at offset `at` of `to`, with its tag. */
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
function createRecordCipher(direction: 'seal' | 'open', key: Uint8Array): RecordCipher {
  return isAvailable().available && hasOpenSsl() ? nativeCipher(direction, key) : nodeCipher(key)
}

/** Encrypts and decrypts in place, by native calls of OpenSSL. */
export function nativeCipher(direction: 'seal' | 'open', key: Uint8Array): RecordCipher {
  const gcm = openAesGcm(direction, key)
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

/** Returns the same nonce as `openAesGcm`: 4 zero bytes, then the counter, big-endian. */
function nonceOf(counter: number): Uint8Array {
  const nonce = new Uint8Array(12)
  new DataView(nonce.buffer).setBigUint64(4, BigInt(counter))
  return nonce
}

/**
 * Largest size in bytes of a *piece*, the data of one record. Shorter pieces cost more calls. Longer pieces
 * delay the peer, which can decrypt a record only after its end has arrived.
 */
export const LARGEST_PIECE = 24 * 1024
const RECORD_BYTES = LARGEST_PIECE + OVERHEAD_BYTES
/** Bytes to read ahead: a few records, so that the start of a record rarely has to be moved. */
const INCOMING_BYTES = 4 * RECORD_BYTES

/** Number of records after which a key is replaced, far below the limit of AES-GCM. */
const RECORDS_OF_A_KEY = 2 ** 24

/**
 * Returned by `receive` for a record that is not the next record of the peer, or that was changed.
 */
export const ALTERED = -2

/**
 * Sends bytes of a region over the connection. Returns the number of accepted bytes, 0 if the
 * connection is full, or `CLOSED`.
 */
export type SendRaw = (region: Region, at: number, length: number, more: boolean) => number
/**
 * Receives bytes of the connection into a region. Returns the number of bytes, 0 if there are none,
 * or `CLOSED`.
 */
export type ReceiveRaw = (region: Region, at: number, length: number) => number

export type SealedStream = ReturnType<typeof sealStream>

/**
 * Encrypts and decrypts the streams to and from one peer. The streams are split into records.
 *
 * A partly sent record cannot be withdrawn. The last byte of its piece is reported as sent only
 * once the whole record is sent. Until then, the caller retries with that byte.
 *
 * @param batch - number of records to pass to the connection at once
 * @param recordsOfAKey - number of records after which to replace the key; the same on both sides
 */
export function sealStream(
  heap: Region,
  keys: SessionKeys,
  batch = 1,
  recordsOfAKey = RECORDS_OF_A_KEY,
) {
  const sealing = keyInUse('seal', keys.sending, recordsOfAKey)
  const opening = keyInUse('open', keys.receiving, recordsOfAKey)
  const batchBytes = batch * LARGEST_PIECE
  const outgoing = lazyRegion(batch * RECORD_BYTES)
  const incoming = lazyRegion(INCOMING_BYTES)
  /** The unsent bytes of pending records: [from, to) of `outgoing`. */
  let unsent = { from: 0, to: 0 }
  /** The unread bytes: [from, to) of `incoming`. */
  let unread = { from: 0, to: 0 }
  /** Number of decrypted bytes at the start of the unread bytes. */
  let opened = 0
  let isClosed = false

  const seal = (at: number, length: number): void => {
    const region = outgoing()
    const { cipher } = sealing
    let to = 0
    for (let done = 0; done < length;) {
      const piece = Math.min(length - done, LARGEST_PIECE)
      writeLength(region, to, piece)
      cipher.seal(sealing.count(), heap, at + done, piece, region, to)
      done += piece
      to += piece + OVERHEAD_BYTES
    }
    unsent = { from: 0, to }
  }

  const flush = (more: boolean, sendRaw: SendRaw): 'sent' | 'full' | 'closed' => {
    while (unsent.from < unsent.to) {
      const taken = sendRaw(outgoing(), unsent.from, unsent.to - unsent.from, more)
      if (taken === CLOSED) return 'closed'
      if (taken === 0) return 'full'
      unsent.from += taken
    }
    return 'sent'
  }

  /** Copies decrypted bytes that did not fit into the buffer of the last call. */
  const takeOpened = (at: number, room: number): number => {
    const taken = Math.min(room, opened)
    if (taken === 0) return 0
    const { from } = unread
    heap.bytes.set(incoming().bytes.subarray(from, from + taken), at)
    opened -= taken
    unread.from += taken
    if (opened === 0) unread.from += OVERHEAD_BYTES - HEADER_BYTES
    return taken
  }

  /** Returns the length of the next piece; 0 if incomplete, undefined if invalid. */
  const nextRecord = (): number | undefined => {
    const { from, to } = unread
    if (to - from < HEADER_BYTES) return 0
    const bytes = readLength(incoming(), from)
    if (bytes === 0 || bytes > LARGEST_PIECE) return undefined
    return to - from < bytes + OVERHEAD_BYTES ? 0 : bytes
  }

  /** Decrypts a record to offset `at` of the heap, or in place if `at` is undefined. */
  const open = (bytes: number, at: number | undefined): boolean => {
    const region = incoming()
    const { from } = unread
    const { cipher } = opening
    const counter = opening.count()
    if (at !== undefined) {
      unread.from += bytes + OVERHEAD_BYTES
      return cipher.open(counter, region, from, bytes, heap, at)
    }
    unread.from += HEADER_BYTES
    opened = bytes
    return cipher.open(counter, region, from, bytes, region, from + HEADER_BYTES)
  }

  /** Moves an incomplete record to the front of the buffer if its end might not fit. */
  const makeRoom = (): { region: Region; room: number } => {
    const region = incoming()
    const { from, to } = unread
    if (from === to) {
      unread = { from: 0, to: 0 }
    } else if (INCOMING_BYTES - from < RECORD_BYTES) {
      region.bytes.copyWithin(0, from, to)
      unread = { from: 0, to: to - from }
    }
    return { region, room: INCOMING_BYTES - unread.to }
  }

  return {
    /** Sends bytes, like `Transport.trySend`. */
    send(at: number, length: number, more: boolean, sendRaw: SendRaw): number {
      if (isClosed) return CLOSED
      let sent = 0
      // Send the pending records first. The caller was not yet told that their last byte is sent.
      if (unsent.from < unsent.to) {
        const state = flush(more && length === 1, sendRaw)
        if (state !== 'sent') return state === 'closed' ? CLOSED : 0
        sent = 1
      }
      while (sent < length) {
        const bytes = Math.min(length - sent, batchBytes)
        seal(at + sent, bytes)
        // Send the records at once instead of waiting for more, because the peer waits for them.
        const state = flush(more && sent + bytes === length, sendRaw)
        if (state === 'closed') return CLOSED
        if (state === 'full') return sent + bytes - 1
        sent += bytes
      }
      return sent
    },
    /** Receives bytes, like `Transport.tryReceive`. `ALTERED` ends the stream, like `CLOSED`. */
    receive(at: number, length: number, receiveRaw: ReceiveRaw): number {
      if (isClosed) return CLOSED
      let received = 0
      let isDry = false
      for (;;) {
        received += takeOpened(at + received, length - received)
        if (received === length) return received
        const bytes = nextRecord()
        if (bytes === undefined) return ALTERED
        if (bytes > 0) {
          const isWhole = bytes <= length - received
          if (!open(bytes, isWhole ? at + received : undefined)) return ALTERED
          if (isWhole) received += bytes
        } else {
          if (isDry) return received
          const { region, room } = makeRoom()
          const taken = receiveRaw(region, unread.to, room)
          if (taken <= 0) return received > 0 ? received : taken
          unread.to += taken
          isDry = taken < room
        }
      }
    },
    close(): void {
      isClosed = true
      sealing.cipher.close()
      opening.cipher.close()
    },
  }
}

function keyInUse(direction: 'seal' | 'open', first: Uint8Array, recordsOfAKey: number) {
  const cipher = createRecordCipher(direction, first)
  let key = first
  let records = 0
  return {
    cipher,
    /** Returns the number of the next record. Replaces the key after enough records. */
    count(): number {
      const counter = records++
      if (counter > 0 && counter % recordsOfAKey === 0) {
        key = nextKey(key)
        cipher.rekey(key)
      }
      return counter
    },
  }
}

/** Allocates memory for records on first use, because many connections are never used. */
function lazyRegion(bytes: number): () => Region {
  let region: Region | undefined
  return () => (region ??= regionOf(new Uint8Array(bytes)))
}

function writeLength({ bytes }: Region, at: number, length: number): void {
  for (let i = 0; i < HEADER_BYTES; i++) bytes[at + i] = length >>> (8 * i)
}

function readLength({ bytes }: Region, at: number): number {
  return (
    (bytes[at]! | (bytes[at + 1]! << 8) | (bytes[at + 2]! << 16) | (bytes[at + 3]! << 24)) >>> 0
  )
}
