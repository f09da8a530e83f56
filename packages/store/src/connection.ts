import type { Socket } from 'node:net'
import { FrameReader, frameHeader } from './framing.ts'

export interface ConnectionEvents {
  /** A whole frame; when it throws, the connection is destroyed with the error as its reason. */
  readonly onFrame: (frame: Uint8Array) => void
  /** Once, however the connection ends. */
  readonly onClose: (reason: string) => void
}

/** Frames over an authenticated socket. */
export class Connection {
  readonly #socket: Socket
  readonly #reader: FrameReader
  readonly #events: ConnectionEvents
  readonly #waitForDrain: boolean
  /** Resolves when it has ended. */
  readonly closed: Promise<void>
  #reason = 'the other side ended it'

  /**
   * @param waitForDrain - reads nothing more while the peer does not take what was sent. For the
   * server only: if both sides did it, each could wait for the other.
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

  /** Reads what has come already; the rest follows by itself. */
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

  /** Ends it once all that was sent is with the kernel. */
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
