import { randomBytes } from 'node:crypto'
import { closeSync, fstatSync, readlinkSync, readSync } from 'node:fs'
import { hostname } from 'node:os'
import {
  addressOf,
  addressOfBell,
  closeNative,
  createBell,
  createSharedFile,
  mapFileOver,
  openBell,
  openSharedFile,
  type BellAddress,
} from '@tsrun/native'
import { hostIdentity } from '@tsrun/store'
import type { SharedSegment } from './neighbours.ts'

/** Bytes at the start of every segment that identify it. */
const NONCE_BYTES = 16

/** What other ranks of the host need to find a memory segment. */
export interface SegmentAddress {
  /** Identifies the host; see `sharingIdentity`. */
  readonly host: string
  readonly pid: number
  readonly fd: number
  readonly bytes: number
  /** Hexadecimal. */
  readonly nonce: string
  /** With which others wake the rank, and learn of its end. */
  readonly bell: BellAddress
}

/**
 * A memory segment: a rank's heap as the other ranks of its host can map it. It is a file without a
 * name, so nothing remains however the processes end, and neither the size nor the rights of /dev/shm
 * matter.
 */
export interface Segment {
  readonly address: SegmentAddress
  /** From now on no rank can find it; mappings that exist stay. */
  close(): void
}

/** Maps a shared file over the still untouched pages of a heap. @throws what libc says */
export function createSegment(memory: WebAssembly.Memory): Segment {
  const bytes = new Uint8Array(memory.buffer)
  const fd = createSharedFile('tsrun-heap', bytes.length)
  let bell: number
  try {
    bell = createBell()
  } catch (error) {
    closeNative(fd)
    throw error
  }
  const close = (): void => {
    closeNative(fd)
    closeSync(bell)
  }
  try {
    mapFileOver(fd, addressOf(bytes), bytes.length)
  } catch (error) {
    close()
    throw error
  }
  const nonce = randomBytes(NONCE_BYTES)
  bytes.set(nonce)
  return {
    address: {
      host: sharingIdentity(),
      pid: process.pid,
      fd,
      bytes: bytes.length,
      nonce: nonce.toString('hex'),
      bell: addressOfBell(bell),
    },
    close,
  }
}

/**
 * Opens the segment of another rank of this host.
 *
 * @returns descriptors, the caller's to close
 * @throws Error saying why it cannot be shared
 */
export function openSegment({ pid, fd, bytes, nonce, bell }: SegmentAddress): SharedSegment {
  const opened = openSharedFile(pid, fd)
  try {
    const found = Buffer.alloc(NONCE_BYTES)
    readSync(opened, found, 0, NONCE_BYTES, 0)
    if (fstatSync(opened).size !== bytes || found.toString('hex') !== nonce) {
      throw new Error(`descriptor ${fd} of process ${pid} is another file`)
    }
    return { fd: opened, bytes, bell: openBell(pid, bell) }
  } catch (error) {
    closeSync(opened)
    throw error
  }
}

/**
 * Equal for processes that can share memory: processes of one user, on one host, with one namespace
 * of process numbers. Containers and network namespaces count as hosts of their own.
 */
function sharingIdentity(): string {
  const numbers = readlinkSync('/proc/self/ns/pid')
  return [hostIdentity(), hostname(), numbers, process.getuid?.() ?? ''].join(' ')
}
