import type { Socket } from 'node:net'
import type { Readable } from 'node:stream'
import { messageOf, tsrError } from '@tsrun/core'
import { FRAME_LIMIT } from './protocol.ts'

/** Bytes passed to a socket at once. Each connection may hold an encrypted copy of them. */
const PIECE = 256 * 1024

export interface ConnectionEvents {
  /**
   * Receives a whole frame. If it throws, the connection is destroyed, with the error as the
   * reason.
   */
  readonly onFrame: (frame: Uint8Array) => void
  /** Called whenever the socket has accepted part of the unsent data. */
  readonly onDrain?: () => void
  /** Called once, when the connection ends for any reason. */
  readonly onClose: (reason: string) => void
}

/** Sends and receives frames over an authenticated socket. */
export class Connection {
  readonly #socket: Socket
  readonly #reader: FrameReader
  readonly #events: ConnectionEvents
  readonly #waitForDrain: boolean
  /** Parts of frames that the socket has not accepted yet. */
  readonly #unsent: Uint8Array[] = []
  #unsentBytes = 0
  #isEnding = false
  /** Resolves when the connection has ended. */
  readonly closed: Promise<void>
  #reason = 'the other side ended it'

  /**
   * @param waitForDrain - whether to stop reading while the peer leaves sent data unread. Only the
   * server may do so: if both sides waited, they could deadlock.
   */
  constructor(socket: Socket, events: ConnectionEvents, waitForDrain: boolean) {
    this.#socket = socket
    this.#reader = new FrameReader(socket)
    this.#events = events
    this.#waitForDrain = waitForDrain
    const read = (): void => {
      this.#read()
    }
    socket.on('readable', read).on('drain', () => {
      this.#write()
      events.onDrain?.()
      read()
    })
    socket.on('error', (error) => (this.#reason = error.message))
    this.closed = new Promise((resolve) => {
      const close = (): void => {
        events.onClose(this.#reason)
        resolve()
      }
      if (socket.closed) queueMicrotask(close)
      else socket.on('close', close)
    })
  }

  /** Reads buffered frames, then reads frames as they arrive. */
  start(): void {
    this.#read()
  }

  /** Number of bytes that the kernel has not accepted yet. */
  get backlog(): number {
    return this.#unsentBytes + this.#socket.writableLength
  }

  /**
   * Sends one frame.
   * @param parts - the bytes of the frame. They must not change, because connections may share
   * them.
   */
  send(...parts: readonly Uint8Array[]): void {
    if (this.#socket.destroyed) return
    const length = parts.reduce((sum, { byteLength }) => sum + byteLength, 0)
    this.#unsent.push(frameHeader(length), ...parts)
    this.#unsentBytes += FRAME_HEADER_BYTES + length
    this.#write()
  }

  get #isFull(): boolean {
    return this.#unsent.length > 0 || this.#socket.writableNeedDrain
  }

  setBusy(busy: boolean): void {
    if (busy) this.#socket.ref()
    else this.#socket.unref()
  }

  /** Ends the connection once the kernel has accepted everything that was sent. */
  end(): void {
    this.#isEnding = true
    this.#write()
  }

  destroy(reason: string): void {
    this.#reason = reason
    this.#socket.destroy()
  }

  /** Writes until the socket applies back-pressure. */
  #write(): void {
    this.#socket.cork()
    while (!this.#socket.writableNeedDrain) {
      const part = this.#unsent.shift()
      if (part === undefined) break
      const piece = part.subarray(0, PIECE)
      if (piece.length < part.length) this.#unsent.unshift(part.subarray(PIECE))
      this.#unsentBytes -= piece.length
      this.#socket.write(piece)
    }
    this.#socket.uncork()
    if (this.#isEnding && this.#unsent.length === 0) this.#socket.destroySoon()
  }

  #read(): void {
    try {
      while (!this.#socket.destroyed && !(this.#waitForDrain && this.#isFull)) {
        const frame = this.#reader.next()
        if (frame === undefined) return
        this.#events.onFrame(frame)
      }
    } catch (error) {
      this.destroy(messageOf(error))
    }
  }
}

/** A frame is its length (4 bytes, little-endian), followed by that many bytes. */
const FRAME_HEADER_BYTES = 4

function frameHeader(length: number): Uint8Array {
  const header = new Uint8Array(FRAME_HEADER_BYTES)
  new DataView(header.buffer).setUint32(0, length, true)
  return header
}

/** Reads complete frames from a stream in paused mode. */
class FrameReader {
  readonly #stream: Readable
  #length: number | undefined

  constructor(stream: Readable) {
    this.#stream = stream
  }

  /**
   * The next frame, or undefined if it is incomplete.
   *
   * @throws ERR_TSR_MESSAGE_TOO_LARGE, ERR_TSR_MESSAGE_INVALID as soon as the length is known
   */
  next(): Uint8Array | undefined {
    this.#length ??= this.#readLength()
    if (this.#length === undefined) return undefined
    const frame = this.#read(this.#length)
    if (frame !== undefined) this.#length = undefined
    return frame
  }

  #readLength(): number | undefined {
    const length = this.#read(FRAME_HEADER_BYTES)?.readUInt32LE(0)
    if (length === 0) throw tsrError('ERR_TSR_MESSAGE_INVALID', { bytes: 0, reason: 'it is empty' })
    if (length !== undefined && length > FRAME_LIMIT) {
      throw tsrError('ERR_TSR_MESSAGE_TOO_LARGE', { bytes: length, limit: FRAME_LIMIT })
    }
    return length
  }

  /**
   * Reads `length` bytes. Returns undefined if the stream has fewer bytes: an ended stream would
   * return what remains.
   */
  #read(length: number): Buffer | undefined {
    const bytes = this.#stream.read(length) as Buffer | null
    return bytes?.byteLength === length ? bytes : undefined
  }
}
