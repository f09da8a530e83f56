import type { Socket } from 'node:net'
import type { ByteChannel } from '../byte-channel.ts'

/** Bytes that are read ahead of what is asked for. */
const LARGEST_REST = 64 * 1024

/** A node:net socket while it is greeted; `release` hands it over with what was read too far. */
export class SocketChannel implements ByteChannel {
  readonly socket: Socket
  #rest: Buffer[] = []
  #held = 0
  #wake: (() => void) | undefined
  #ended: string | undefined
  readonly #onData = (chunk: Buffer): void => {
    this.#rest.push(chunk)
    this.#held += chunk.length
    // a greeting is short: whoever sends more waits until it is read, or is a stranger
    if (this.#held > LARGEST_REST) this.socket.pause()
    this.#wake?.()
  }

  constructor(socket: Socket) {
    this.socket = socket
    const end = (reason: string): void => {
      this.#ended ??= reason
      this.#wake?.()
    }
    socket.on('data', this.#onData)
    socket.resume()
    socket.on('error', (error) => {
      end(error.message)
    })
    socket.on('close', () => {
      end('the connection ended')
    })
  }

  async write(bytes: Uint8Array): Promise<void> {
    await new Promise<void>((resolve, reject) => {
      this.socket.write(bytes, (error) => {
        if (error === undefined || error === null) resolve()
        else reject(error)
      })
    })
  }

  async read(length: number): Promise<Uint8Array> {
    for (;;) {
      const bytes = Buffer.concat(this.#rest)
      if (bytes.length >= length) {
        this.#rest = bytes.length > length ? [bytes.subarray(length)] : []
        this.#held = bytes.length - length
        if (this.#held <= LARGEST_REST) this.socket.resume()
        return new Uint8Array(bytes.subarray(0, length))
      }
      if (this.#ended !== undefined) throw new Error(this.#ended)
      await new Promise<void>((resolve) => {
        this.#wake = resolve
      })
    }
  }

  /** Stops reading; what came after the greeting, and why no more comes. */
  release(): { readonly chunks: Buffer[]; readonly ended: string | undefined } {
    this.socket.off('data', this.#onData)
    return { chunks: this.#rest, ended: this.#ended }
  }

  close(): void {
    this.socket.destroy()
  }
}
