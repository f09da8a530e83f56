import type { Readable } from 'node:stream'
import { tsrError } from '@tsrun/core'
import { FRAME_LIMIT } from './limits.ts'

/** A frame is its length (4 bytes, little-endian) and that many bytes. */
const FRAME_HEADER_BYTES = 4

export function frameHeader(length: number): Uint8Array {
  const header = new Uint8Array(FRAME_HEADER_BYTES)
  new DataView(header.buffer).setUint32(0, length, true)
  return header
}

/** Takes frames out of a stream in paused mode, as they become complete. */
export class FrameReader {
  readonly #stream: Readable
  #length: number | undefined

  constructor(stream: Readable) {
    this.#stream = stream
  }

  /**
   * The next frame, or undefined when it has not come in full.
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

  /** At its end a stream gives what is left, which is less than a frame. */
  #read(length: number): Buffer | undefined {
    const bytes = this.#stream.read(length) as Buffer | null
    return bytes?.byteLength === length ? bytes : undefined
  }
}
