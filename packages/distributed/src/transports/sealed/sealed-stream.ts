import { nextKey, type SessionKeys } from '@tsrun/core'
import { CLOSED } from '../transport.ts'
import {
  createRecordCipher,
  HEADER_BYTES,
  OVERHEAD_BYTES,
  regionOf,
  type RecordCipher,
  type Region,
} from './record-cipher.ts'

/**
 * Largest piece of the stream in a record, in bytes. Shorter pieces cost more calls. Longer pieces
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

/**
 * The stream to and from one peer as encrypted records.
 *
 * A partly sent record cannot be withdrawn. The last byte of its piece is reported as sent only
 * once the whole record is sent. Until then, the caller retries with that byte.
 */
export class SealedStream {
  readonly #sealing: KeyInUse
  readonly #opening: KeyInUse
  readonly #heap: Region
  readonly #batchBytes: number
  readonly #outgoing: () => Region
  readonly #incoming = lazyRegion(INCOMING_BYTES)
  /** The unsent bytes of pending records: [from, to) of `#outgoing`. */
  #unsent = { from: 0, to: 0 }
  /** The unread bytes: [from, to) of `#incoming`. */
  #unread = { from: 0, to: 0 }
  /** Number of decrypted bytes at the start of the unread bytes. */
  #opened = 0
  #closed = false

  /**
   * @param batch - number of records to pass to the connection at once
   * @param recordsOfAKey - number of records after which to replace the key; the same on both sides
   */
  constructor(heap: Region, keys: SessionKeys, batch = 1, recordsOfAKey = RECORDS_OF_A_KEY) {
    this.#heap = heap
    this.#batchBytes = batch * LARGEST_PIECE
    this.#outgoing = lazyRegion(batch * RECORD_BYTES)
    this.#sealing = new KeyInUse('seal', keys.sending, recordsOfAKey)
    this.#opening = new KeyInUse('open', keys.receiving, recordsOfAKey)
  }

  /** Sends bytes, like `Transport.trySend`. */
  send(at: number, length: number, more: boolean, sendRaw: SendRaw): number {
    if (this.#closed) return CLOSED
    let sent = 0
    // First send the remainder of the pending records. It counts as one byte of the caller's data.
    if (this.#unsent.from < this.#unsent.to) {
      const state = this.#flush(more && length === 1, sendRaw)
      if (state !== 'sent') return state === 'closed' ? CLOSED : 0
      sent = 1
    }
    while (sent < length) {
      const bytes = Math.min(length - sent, this.#batchBytes)
      this.#seal(at + sent, bytes)
      // Send the records at once instead of waiting for more, because the peer waits for them.
      const state = this.#flush(more && sent + bytes === length, sendRaw)
      if (state === 'closed') return CLOSED
      if (state === 'full') return sent + bytes - 1
      sent += bytes
    }
    return sent
  }

  /** Receives bytes, like `Transport.tryReceive`. `ALTERED` ends the stream, like `CLOSED`. */
  receive(at: number, length: number, receiveRaw: ReceiveRaw): number {
    if (this.#closed) return CLOSED
    let received = 0
    let isDry = false
    for (;;) {
      received += this.#takeOpened(at + received, length - received)
      if (received === length) return received
      const bytes = this.#nextRecord()
      if (bytes === undefined) return ALTERED
      if (bytes > 0) {
        const isWhole = bytes <= length - received
        if (!this.#open(bytes, isWhole ? at + received : undefined)) return ALTERED
        if (isWhole) received += bytes
      } else {
        if (isDry) return received
        const { region, room } = this.#makeRoom()
        const taken = receiveRaw(region, this.#unread.to, room)
        if (taken <= 0) return received > 0 ? received : taken
        this.#unread.to += taken
        isDry = taken < room
      }
    }
  }

  close(): void {
    this.#closed = true
    this.#sealing.cipher.close()
    this.#opening.cipher.close()
  }

  #seal(at: number, length: number): void {
    const region = this.#outgoing()
    const { cipher } = this.#sealing
    let to = 0
    for (let done = 0; done < length;) {
      const piece = Math.min(length - done, LARGEST_PIECE)
      writeLength(region, to, piece)
      cipher.seal(this.#sealing.count(), this.#heap, at + done, piece, region, to)
      done += piece
      to += piece + OVERHEAD_BYTES
    }
    this.#unsent = { from: 0, to }
  }

  #flush(more: boolean, sendRaw: SendRaw): 'sent' | 'full' | 'closed' {
    const unsent = this.#unsent
    while (unsent.from < unsent.to) {
      const taken = sendRaw(this.#outgoing(), unsent.from, unsent.to - unsent.from, more)
      if (taken === CLOSED) return 'closed'
      if (taken === 0) return 'full'
      unsent.from += taken
    }
    return 'sent'
  }

  /** Copies decrypted bytes that did not fit into the buffer of the last call. */
  #takeOpened(at: number, room: number): number {
    const taken = Math.min(room, this.#opened)
    if (taken === 0) return 0
    const { from } = this.#unread
    this.#heap.bytes.set(this.#incoming().bytes.subarray(from, from + taken), at)
    this.#opened -= taken
    this.#unread.from += taken
    if (this.#opened === 0) this.#unread.from += OVERHEAD_BYTES - HEADER_BYTES
    return taken
  }

  /**
   * Returns the length of the next record's piece. Returns 0 if the record is incomplete, and
   * undefined if it is invalid.
   */
  #nextRecord(): number | undefined {
    const { from, to } = this.#unread
    if (to - from < HEADER_BYTES) return 0
    const bytes = readLength(this.#incoming(), from)
    if (bytes === 0 || bytes > LARGEST_PIECE) return undefined
    return to - from < bytes + OVERHEAD_BYTES ? 0 : bytes
  }

  /** Decrypts a record to offset `at` of the heap, or in place if `at` is undefined. */
  #open(bytes: number, at: number | undefined): boolean {
    const region = this.#incoming()
    const { from } = this.#unread
    const { cipher } = this.#opening
    const counter = this.#opening.count()
    if (at !== undefined) {
      this.#unread.from += bytes + OVERHEAD_BYTES
      return cipher.open(counter, region, from, bytes, this.#heap, at)
    }
    this.#unread.from += HEADER_BYTES
    this.#opened = bytes
    return cipher.open(counter, region, from, bytes, region, from + HEADER_BYTES)
  }

  /**
   * Moves the start of an incomplete record to the front of the buffer, if the end of the record
   * might not fit.
   */
  #makeRoom(): { region: Region; room: number } {
    const region = this.#incoming()
    const { from, to } = this.#unread
    if (from === to) {
      this.#unread = { from: 0, to: 0 }
    } else if (INCOMING_BYTES - from < RECORD_BYTES) {
      region.bytes.copyWithin(0, from, to)
      this.#unread = { from: 0, to: to - from }
    }
    return { region, room: INCOMING_BYTES - this.#unread.to }
  }
}

class KeyInUse {
  readonly cipher: RecordCipher
  readonly #recordsOfAKey: number
  #key: Uint8Array
  #counter = 0

  constructor(direction: 'seal' | 'open', key: Uint8Array, recordsOfAKey: number) {
    this.cipher = createRecordCipher(direction, key)
    this.#key = key
    this.#recordsOfAKey = recordsOfAKey
  }

  /**
   * Returns the number of the next record. Replaces the key when it has been used for enough
   * records.
   */
  count(): number {
    const counter = this.#counter++
    if (counter > 0 && counter % this.#recordsOfAKey === 0) {
      this.#key = nextKey(this.#key)
      this.cipher.rekey(this.#key)
    }
    return counter
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
