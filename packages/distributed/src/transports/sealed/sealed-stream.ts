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
 * Longest piece of the stream in a record. A shorter one costs more calls; of a longer one the other
 * side waits longer for the end, without which it can use nothing of it.
 */
export const LARGEST_PIECE = 24 * 1024
const RECORD_BYTES = LARGEST_PIECE + OVERHEAD_BYTES
/** Bytes that are read ahead. With room to spare, the begin of a record has to be moved seldom. */
const INCOMING_BYTES = 4 * RECORD_BYTES

/** Records after which a key is replaced, far below what AES-GCM may seal with one. */
const RECORDS_OF_A_KEY = 2 ** 24

/** What `receive` returns for a record that is not the next that the other side has sealed. */
export const ALTERED = -2

/** Sends bytes of a region over the connection; returns how many were taken, 0, or `CLOSED`. */
export type SendRaw = (region: Region, at: number, length: number, more: boolean) => number
/** Receives bytes of the connection into a region; returns how many, 0, or `CLOSED`. */
export type ReceiveRaw = (region: Region, at: number, length: number) => number

/**
 * The stream to and from one peer as records, in place of the bytes themselves.
 *
 * Records cannot be taken back when the connection has taken a part of them. The last byte of their pieces
 * counts as sent only when the last byte of the records is, so the sender tries that byte again.
 */
export class SealedStream {
  readonly #sealing: KeyInUse
  readonly #opening: KeyInUse
  readonly #heap: Region
  readonly #batchBytes: number
  readonly #outgoing: () => Region
  readonly #incoming = lazyRegion(INCOMING_BYTES)
  /** Unsent bytes of the records that are under way are [from, to) of `#outgoing`. */
  #unsent = { from: 0, to: 0 }
  /** Unread bytes are [from, to) of `#incoming`. */
  #unread = { from: 0, to: 0 }
  /** Bytes at the begin of the unread ones that are opened already. */
  #opened = 0
  #closed = false

  /**
   * @param batch - records that are handed to the connection at once
   * @param recordsOfAKey - after which the key is replaced; the same on both sides
   */
  constructor(heap: Region, keys: SessionKeys, batch = 1, recordsOfAKey = RECORDS_OF_A_KEY) {
    this.#heap = heap
    this.#batchBytes = batch * LARGEST_PIECE
    this.#outgoing = lazyRegion(batch * RECORD_BYTES)
    this.#sealing = new KeyInUse('seal', keys.sending, recordsOfAKey)
    this.#opening = new KeyInUse('open', keys.receiving, recordsOfAKey)
  }

  /** As `Transport.trySend`. */
  send(at: number, length: number, more: boolean, sendRaw: SendRaw): number {
    if (this.#closed) return CLOSED
    let sent = 0
    // the byte that the records under way still owe
    if (this.#unsent.from < this.#unsent.to) {
      const state = this.#flush(more && length === 1, sendRaw)
      if (state !== 'sent') return state === 'closed' ? CLOSED : 0
      sent = 1
    }
    while (sent < length) {
      const bytes = Math.min(length - sent, this.#batchBytes)
      this.#seal(at + sent, bytes)
      // Not held back for the next records: the other side waits for the end of these.
      const state = this.#flush(more && sent + bytes === length, sendRaw)
      if (state === 'closed') return CLOSED
      if (state === 'full') return sent + bytes - 1
      sent += bytes
    }
    return sent
  }

  /** As `Transport.tryReceive`; `ALTERED` ends the stream, as does `CLOSED`. */
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

  /** Copies what is opened and was too long for the last call. */
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

  /** The length of the piece of the next record; 0 while it is not there, undefined for none of ours. */
  #nextRecord(): number | undefined {
    const { from, to } = this.#unread
    if (to - from < HEADER_BYTES) return 0
    const bytes = readLength(this.#incoming(), from)
    if (bytes === 0 || bytes > LARGEST_PIECE) return undefined
    return to - from < bytes + OVERHEAD_BYTES ? 0 : bytes
  }

  /** Opens the next record to `at` of the heap, or where it is. */
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

  /** Moves the begin of a record to the front where its end might not fit. */
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

/** The cipher of one direction, its key, and how many records it has seen. */
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

  /** The number of the next record. */
  count(): number {
    const counter = this.#counter++
    if (counter > 0 && counter % this.#recordsOfAKey === 0) {
      this.#key = nextKey(this.#key)
      this.cipher.rekey(this.#key)
    }
    return counter
  }
}

/** Memory for records, from the first use on: many connections are never used. */
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
