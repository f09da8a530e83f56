import type { Socket } from 'node:net'
import type { Readable } from 'node:stream'
import { tsrError } from '@tsrun/core'
import { FRAME_LIMIT } from './protocol.ts'

export interface ConnectionEvents {
  /** Takes a whole frame. If it throws, the connection is destroyed for that reason. */
  readonly onFrame: (frame: Uint8Array) => void
  /** Called once, however the connection ends. */
  readonly onClose: (reason: string) => void
}

/** Frames over an authenticated socket. */
export class Connection {
  readonly #socket: Socket
  readonly #reader: FrameReader
  readonly #events: ConnectionEvents
  readonly #waitForDrain: boolean
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
    socket.on('readable', read).on('drain', read)
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

  /** Bytes that were sent but not yet taken by the kernel. */
  get backlog(): number {
    return this.#socket.writableLength
  }

  send(frame: Uint8Array): void {
    if (this.#socket.destroyed) return
    this.#socket.cork()
    this.#socket.write(frameHeader(frame.byteLength))
    this.#socket.write(frame)
    this.#socket.uncork()
  }

  /** Whether this connection keeps the process alive. */
  setBusy(busy: boolean): void {
    if (busy) this.#socket.ref()
    else this.#socket.unref()
  }

  /** Ends the connection once the kernel has taken all that was sent. */
  end(): void {
    this.#socket.destroySoon()
  }

  destroy(reason: string): void {
    this.#reason = reason
    this.#socket.destroy()
  }

  #read(): void {
    try {
      while (!this.#socket.destroyed && !(this.#waitForDrain && this.#socket.writableNeedDrain)) {
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
