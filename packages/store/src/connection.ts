import type { Socket } from 'node:net'
import { messageOf, tsrError } from '@tsrun/core'
import { FRAME_LIMIT, totalBytes } from './protocol.ts'

/** Bytes passed to a socket at once. Each connection may hold an encrypted copy of them. */
const PIECE = 256 * 1024

export interface ConnectionEvents {
  /** Receives a whole frame. If it throws, the connection is destroyed for this reason. */
  readonly onFrame: (frame: Uint8Array) => void
  /** Called whenever the socket has accepted part of the unsent data. */
  readonly onDrain?: () => void
  /** Called once, when the connection ends for any reason. */
  readonly onClose: (reason: string) => void
}

/** A frame is its length (4 bytes, little-endian), followed by that many bytes. */
const FRAME_HEADER_BYTES = 4

export type Connection = ReturnType<typeof openConnection>

/**
 * Sends and receives frames over an authenticated socket.
 *
 * @param waitForDrain - whether to stop reading while the peer leaves sent data unread. Only the
 * server may do so: if both sides waited, they could deadlock.
 */
export function openConnection(socket: Socket, events: ConnectionEvents, waitForDrain: boolean) {
  /** Parts of frames that the socket has not accepted yet. */
  const unsent: Uint8Array[] = []
  let unsentBytes = 0
  let isEnding = false
  let reason = 'the other side ended it'
  /** Length of the frame whose header has been read. */
  let coming: number | undefined

  const destroy = (why: string) => {
    reason = why
    socket.destroy()
  }

  /** Writes until the socket applies back-pressure. */
  const write = () => {
    socket.cork()
    while (!socket.writableNeedDrain) {
      const part = unsent.shift()
      if (part === undefined) break
      const piece = part.subarray(0, PIECE)
      if (piece.length < part.length) unsent.unshift(part.subarray(PIECE))
      unsentBytes -= piece.length
      socket.write(piece)
    }
    socket.uncork()
    if (isEnding && unsent.length === 0) socket.destroySoon()
  }

  /** The next frame, or undefined if it is incomplete. */
  const nextFrame = () => {
    coming ??= readLength(socket)
    if (coming === undefined) return undefined
    const frame = readBytes(socket, coming)
    if (frame !== undefined) coming = undefined
    return frame
  }

  const read = () => {
    try {
      while (!socket.destroyed) {
        if (waitForDrain && (unsent.length > 0 || socket.writableNeedDrain)) return
        const frame = nextFrame()
        if (frame === undefined) return
        events.onFrame(frame)
      }
    } catch (error) {
      destroy(messageOf(error))
    }
  }

  socket.on('readable', read).on('drain', () => {
    write()
    events.onDrain?.()
    read()
  })
  socket.on('error', (error) => (reason = error.message))
  const closed = new Promise<void>((resolve) => {
    const close = () => {
      events.onClose(reason)
      resolve()
    }
    if (socket.closed) queueMicrotask(close)
    else socket.on('close', close)
  })

  return {
    /** Resolves when the connection has ended. */
    closed,
    /** Reads buffered frames, then reads frames as they arrive. */
    start: read,
    /** Returns the number of bytes that the kernel has not accepted yet. */
    backlog: () => unsentBytes + socket.writableLength,
    /** Sends a frame in parts, which must not change, because connections may share them. */
    send(...parts: readonly Uint8Array[]) {
      if (socket.destroyed) return
      const length = totalBytes(parts)
      const header = new Uint8Array(FRAME_HEADER_BYTES)
      new DataView(header.buffer).setUint32(0, length, true)
      unsent.push(header, ...parts)
      unsentBytes += FRAME_HEADER_BYTES + length
      write()
    },
    setBusy: (busy: boolean) => {
      if (busy) socket.ref()
      else socket.unref()
    },
    /** Ends the connection once the kernel has accepted everything that was sent. */
    end() {
      isEnding = true
      write()
    },
    destroy,
  }
}

/** @throws ERR_TSR_MESSAGE_TOO_LARGE, ERR_TSR_MESSAGE_INVALID as soon as the length is known */
function readLength(socket: Socket) {
  const length = readBytes(socket, FRAME_HEADER_BYTES)?.readUInt32LE(0)
  if (length === 0) throw tsrError('ERR_TSR_MESSAGE_INVALID', { bytes: 0, reason: 'it is empty' })
  if (length !== undefined && length > FRAME_LIMIT) {
    throw tsrError('ERR_TSR_MESSAGE_TOO_LARGE', { bytes: length, limit: FRAME_LIMIT })
  }
  return length
}

/** Returns undefined if the socket has fewer bytes. (`read` of an ended socket returns the rest.) */
export function readBytes(socket: Socket, length: number): Buffer | undefined {
  const bytes = socket.read(length) as Buffer | null
  return bytes?.byteLength === length ? bytes : undefined
}
