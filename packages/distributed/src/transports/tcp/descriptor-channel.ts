import { setTimeout as sleep } from 'node:timers/promises'
import { addressOf, closeSocket, EAGAIN, errnoName, receiveBytes, sendBytes } from '@tsrun/native'
import type { ByteChannel } from '../byte-channel.ts'

/** A connected non-blocking socket while it is greeted. */
export class DescriptorChannel implements ByteChannel {
  readonly fd: number
  #closed = false

  constructor(fd: number) {
    this.fd = fd
  }

  async write(bytes: Uint8Array): Promise<void> {
    await this.#move(bytes, (at, length) => sendBytes(this.fd, at, length, false))
  }

  async read(length: number): Promise<Uint8Array> {
    const bytes = new Uint8Array(length)
    await this.#move(bytes, (at, left) => {
      const taken = receiveBytes(this.fd, at, left)
      if (taken === 0) throw new Error('the connection ended')
      return taken
    })
    return bytes
  }

  close(): void {
    if (!this.#closed) closeSocket(this.fd)
    this.#closed = true
  }

  async #move(bytes: Uint8Array, move: (at: number, length: number) => number): Promise<void> {
    for (let done = 0; done < bytes.length;) {
      if (this.#closed) throw new Error('the connection was closed')
      const moved = move(addressOf(bytes.subarray(done)), bytes.length - done)
      if (moved > 0) done += moved
      else if (moved === -EAGAIN) await sleep(1)
      else throw new Error(`the connection failed with ${errnoName(-moved)}`)
    }
  }
}
