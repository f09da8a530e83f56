import { writeSync } from 'node:fs'
import {
  duplicateAbove,
  EAGAIN,
  EINTR,
  isAvailable,
  lastErrno,
  statusOf,
  writeNative,
} from '@tsrun/native'
import type { ControlMessage } from '../protocol/control.ts'

/**
 * Minimum descriptor numbers for the duplicate, tried in this order. Programs that close all descriptors
 * usually stop at 255 or 1023. Large numbers fail if the descriptor limit of the process is low.
 */
const ABOVE = [4000, 1000, 255]

export type ControlPipe = ReturnType<typeof openControlPipe>

/**
 * The control pipe of a rank. The program may close the inherited descriptor and reuse the number. So
 * the rank writes to a private duplicate, after checking that it is still the same pipe.
 */
export function openControlPipe(inherited: number) {
  const fd = isAvailable().available ? duplicate(inherited) : inherited
  const identity = identityOf(fd)
  return {
    fd,
    /** @returns whether the launcher can read the message */
    send(message: ControlMessage): boolean {
      const bytes = Buffer.from(JSON.stringify(message) + '\n')
      for (let sent = 0; sent < bytes.length;) {
        if (identity === undefined || identityOf(fd) !== identity) return false
        const written = write(fd, bytes.subarray(sent))
        if (written === undefined) return false
        sent += written
      }
      return true
    },
  }
}

/**
 * Returns how many bytes were written, which is 0 while the pipe is full; undefined if the launcher is
 * gone. If libc made the descriptor, writes with libc.
 */
function write(fd: number, bytes: Uint8Array): number | undefined {
  if (isAvailable().available) {
    const written = writeNative(fd, bytes)
    return written >= 0 ? written : [EAGAIN, EINTR].includes(lastErrno()) ? 0 : undefined
  }
  try {
    return writeSync(fd, bytes)
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EAGAIN' ? 0 : undefined
  }
}

function duplicate(fd: number): number {
  for (const above of ABOVE) {
    const copy = duplicateAbove(fd, above)
    if (copy !== undefined) return copy
  }
  return fd
}

/** Identifies an open file, so that a reused descriptor number is detected; undefined if it is closed. */
function identityOf(fd: number): string | undefined {
  try {
    const { dev, ino, mode } = statusOf(fd)
    return [dev, ino, mode].join()
  } catch {
    return undefined
  }
}
