import type { Socket } from 'node:net'
import type { Readable } from 'node:stream'
import { tsrError } from '@tsrun/core'
import { FRAME_LIMIT } from './protocol.ts'

/** Bytes that a socket gets at once: a copy of them may exist for each connection, encrypted. */
const PIECE = 256 * 1024

export interface ConnectionEvents {
  /** Takes a whole frame. If it throws, the connection is destroyed for that reason. */
  readonly onFrame: (frame: Uint8Array) => void
  /** Called whenever the socket has taken a part of what was sent. */
  readonly onDrain?: () => void
  /** Called once, however the connection ends. */
  readonly onClose: (reason: string) => void
}

/** Frames over an authenticated socket. */
export class Connection {
  readonly #socket: Socket
  readonly #reader: FrameReader
  readonly #events: ConnectionEvents
  readonly #waitForDrain: boolean
  /** Parts of frames that the socket has not been given. */
  readonly #unsent: Uint8Array[] = []
  #unsentBytes = 0
  #isEnding = false
  /** Resolves when the connection has ended. */
  readonly closed: Promise<void>
  #reason = 'the other side ended it'

  /**
   * @param waitForDrain - stop reading while the peer does not take what was sent. For the server
   * only: if both sides did so, each could wait for the other.
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

  /** Reads what has arrived before; from then on frames are read as they arrive. */
  start(): void {
    this.#read()
  }

  /** Bytes of frames that the kernel has not taken. */
  get backlog(): number {
    return this.#unsentBytes + this.#socket.writableLength
  }

  /** @param parts - of one frame. They must not change: other connections may share them. */
  send(...parts: readonly Uint8Array[]): void {
    if (this.#socket.destroyed) return
    const length = parts.reduce((sum, { byteLength }) => sum + byteLength, 0)
    this.#unsent.push(frameHeader(length), ...parts)
    this.#unsentBytes += FRAME_HEADER_BYTES + length
    this.#write()
  }

  /** Whether the socket takes no more now. */
  get #isFull(): boolean {
    return this.#unsent.length > 0 || this.#socket.writableNeedDrain
  }

  /** Whether this connection keeps the process alive. */
  setBusy(busy: boolean): void {
    if (busy) this.#socket.ref()
    else this.#socket.unref()
  }

  /** Ends the connection once the kernel has taken all that was sent. */
  end(): void {
    this.#isEnding = true
    this.#write()
  }

  destroy(reason: string): void {
    this.#reason = reason
    this.#socket.destroy()
  }

  /** Gives the socket as much as it takes. */
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
      this.destroy(error instanceof Error ? error.message : String(error))
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

/** Takes frames out of a stream in paused mode as they become complete. */
class FrameReader {
  readonly #stream: Readable
  #length: number | undefined

  constructor(stream: Readable) {
    this.#stream = stream
  }

  /**
   * The next frame, or undefined when it has not arrived in full.
   *
   * @throws ERR_TSR_MESSAGE_TOO_LARGE, ERR_TSR_MESSAGE_INVALID from its length alone
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

  /** Undefined unless there are `length` bytes: at its end a stream returns what is left. */
  #read(length: number): Buffer | undefined {
    const bytes = this.#stream.read(length) as Buffer | null
    return bytes?.byteLength === length ? bytes : undefined
  }
}
