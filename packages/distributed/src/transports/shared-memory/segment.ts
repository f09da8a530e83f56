import { randomBytes } from 'node:crypto'
import { readlinkSync } from 'node:fs'
import { hostname } from 'node:os'
import {
  addressOf,
  addressOfBell,
  closeNative,
  createBell,
  createSharedFile,
  mapFile,
  mapFileOver,
  openBell,
  openSharedFile,
  readNative,
  statusOf,
  type BellAddress,
} from '@tsrun/native'
import { hostIdentity } from '@tsrun/store'
import type { SharedSegment } from './neighbours.ts'

/** Bytes of the nonce at the start of a segment, which identifies the segment. */
const NONCE_BYTES = 16

/** The address of a memory segment for other ranks of the host. */
export interface SegmentAddress {
  /** Identity of the host and user, from `sharingIdentity`. */
  readonly host: string
  readonly pid: number
  readonly fd: number
  readonly bytes: number
  /** The nonce of the segment, in hexadecimal. */
  readonly nonce: string
  /** The bell that wakes this rank. It also shows other ranks that the process of this rank has ended. */
  readonly bell: BellAddress
}

export type Segment = ReturnType<typeof createSegment>

/**
 * Creates a memory segment: maps a shared file over the untouched pages of a heap, so that other
 * ranks of the host can map the heap. The file has no name, so it disappears when all processes have
 * ended, even after a crash. It does not depend on the size or permissions of /dev/shm.
 *
 * @throws the libc error
 */
export function createSegment(memory: WebAssembly.Memory) {
  // This call throws without /proc: other processes could not open the file and the bell.
  const host = sharingIdentity()
  const bytes = new Uint8Array(memory.buffer)
  const fd = createSharedFile('tsrun-heap', bytes.length)
  let bell: number | undefined
  const close = (): void => {
    closeNative(fd)
    if (bell !== undefined) closeNative(bell)
  }
  try {
    bell = createBell()
    mapFileOver(fd, addressOf(bytes), bytes.length)
  } catch (error) {
    close()
    throw error
  }
  const nonce = randomBytes(NONCE_BYTES)
  bytes.set(nonce)
  const address: SegmentAddress = {
    host,
    pid: process.pid,
    fd,
    bytes: bytes.length,
    nonce: nonce.toString('hex'),
    bell: addressOfBell(bell),
  }
  return {
    address,
    /** Makes the segment unavailable to new mappings; existing ones stay. */
    close,
  }
}

/**
 * Opens and maps the segment of another rank of this host.
 *
 * @returns the segment, which the caller must close
 * @throws Error with the reason if the segment cannot be shared
 */
export function openSegment({ pid, fd, bytes, nonce, bell }: SegmentAddress): SharedSegment {
  const opened = openSharedFile(pid, fd)
  let openedBell: number | undefined
  try {
    const found = Buffer.alloc(NONCE_BYTES)
    readNative(opened, found)
    if (Number(statusOf(opened).size) !== bytes || found.toString('hex') !== nonce) {
      throw new Error(`descriptor ${fd} of process ${pid} is another file`)
    }
    openedBell = openBell(pid, bell)
    return { fd: opened, bell: openedBell, heap: { address: mapFile(opened, bytes), bytes } }
  } catch (error) {
    closeNative(opened)
    if (openedBell !== undefined) closeNative(openedBell)
    throw error
  }
}

/**
 * Returns a text that is equal for processes that can share memory: same user, same host, same PID
 * namespace. Containers and network namespaces count as separate hosts.
 */
function sharingIdentity(): string {
  const numbers = readlinkSync('/proc/self/ns/pid')
  return [hostIdentity(), hostname(), numbers, process.getuid?.() ?? ''].join(' ')
}
