import { randomBytes } from 'node:crypto'
import { closeSync, fstatSync, readlinkSync, readSync } from 'node:fs'
import { hostname } from 'node:os'
import { addressOf, createSharedFile, mapFileOver, openSharedFile } from '@tsrun/native'
import { hostIdentity } from '@tsrun/store'

/** Bytes at the start of every segment that prove which one it is. */
const NONCE_BYTES = 16

/** What other ranks of the host need to find a segment. */
export interface SegmentAddress {
  /** Which host, see `sharingIdentity`. */
  readonly host: string
  readonly pid: number
  readonly fd: number
  readonly bytes: number
  /** Hexadecimal. */
  readonly nonce: string
}

/**
 * A rank's heap that the other ranks of its host can map. It is a file without a name, so nothing
 * is left behind whatever ends the processes, and neither size nor rights of /dev/shm matter.
 */
export interface Segment {
  readonly address: SegmentAddress
  /** No rank can find it any more; those that have stay. */
  seal(): void
}

/** Puts a shared file in place of the still untouched pages of a heap. @throws what libc says */
export function createSegment(memory: WebAssembly.Memory): Segment {
  const bytes = new Uint8Array(memory.buffer)
  const fd = createSharedFile('tsrun-heap', bytes.length)
  try {
    mapFileOver(fd, addressOf(bytes), bytes.length)
  } catch (error) {
    closeSync(fd)
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
    },
    seal: () => {
      closeSync(fd)
    },
  }
}

/**
 * Opens the segment of another rank of this host.
 *
 * @returns a descriptor, the caller's to close
 * @throws Error saying why it cannot be shared
 */
export function openSegment({ pid, fd, bytes, nonce }: SegmentAddress): number {
  const opened = openSharedFile(pid, fd)
  try {
    const found = Buffer.alloc(NONCE_BYTES)
    readSync(opened, found, 0, NONCE_BYTES, 0)
    if (fstatSync(opened).size !== bytes || found.toString('hex') !== nonce) {
      throw new Error(`descriptor ${fd} of process ${pid} is another file`)
    }
    return opened
  } catch (error) {
    closeSync(opened)
    throw error
  }
}

/**
 * The same for processes that can share memory: of one user, on one host (containers and network
 * namespaces count as hosts of their own), with one set of process numbers.
 */
function sharingIdentity(): string {
  const numbers = readlinkSync('/proc/self/ns/pid')
  return [hostIdentity(), hostname(), numbers, process.getuid?.() ?? ''].join(' ')
}
