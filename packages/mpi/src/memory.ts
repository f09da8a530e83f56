import { addressOf } from '@tsrun/native'
import type { LibMpi } from './libmpi.ts'

export type Mpi = ReturnType<typeof mpiOn>

/**
 * Returns libmpi with functions that convert for a rank's heap: offsets to addresses, and numbers to C
 * values.
 */
export function mpiOn(bytes: Uint8Array, { abi, call }: LibMpi) {
  const base = addressOf(bytes)
  const integers = new Int32Array(bytes.buffer)
  const words = new Uint32Array(bytes.buffer)
  const address = (at: number): number => base + at
  const integer = (at: number): number => integers[at / 4]!
  return {
    abi,
    call,
    integers,
    address,
    integer,
    handle: (at: number): number => {
      if (abi.handleBytes === 4) return integer(at)
      return words[at / 4]! + words[at / 4 + 1]! * 2 ** 32
    },
    putHandle: (at: number, handle: number): void => {
      words[at / 4] = handle
      if (abi.handleBytes === 8) words[at / 4 + 1] = Math.floor(handle / 2 ** 32)
    },
    /** Whether the request at offset `request` is done. Writes its status to the address `status`. */
    isDone: (request: number, status = abi.statusIgnore): boolean => {
      call('Test', address(request), address(low.flag), status)
      return integer(low.flag) !== 0
    },
  }
}

/** Offsets, in the first 128 bytes of the heap, of values that libmpi reads and writes. */
export const low = {
  /** Number of failed operations whose buffers libmpi may still use. `leaveMpiAtExit` reads it. */
  abandoned: 0,
  flag: 8,
  count: 16,
  handle: 24,
  status: 64,
} as const

const SMALL_BYTES = 128
/** Number of posted receives from any source. */
const RECEIVES = 8
/** Largest number of pending sends to one rank. */
export const SENDS = 2
const REQUEST_BYTES = 8
const LARGEST_SLOT = 64 * 1024
const SMALLEST_SLOT = 4096

/**
 * Lays out the slots, for one message and its request each, in at most a quarter of the engine's
 * memory. Returns undefined if that is too little.
 */
export function layOut(worldSize: number, engineBytes: number) {
  const slots = RECEIVES + SENDS * worldSize
  let slotBytes = LARGEST_SLOT
  while (slots * slotBytes > engineBytes / 4) slotBytes /= 2
  if (slotBytes < SMALLEST_SLOT) return undefined
  const dataAt = Math.ceil((SMALL_BYTES + slots * REQUEST_BYTES) / 64) * 64
  const all = Array.from({ length: slots }, (_, i) => ({
    data: dataAt + i * slotBytes,
    request: SMALL_BYTES + i * REQUEST_BYTES,
  }))
  return {
    slotBytes,
    receives: all.slice(0, RECEIVES),
    /** SENDS slots for each rank. */
    sends: all.slice(RECEIVES),
    end: dataAt + slots * slotBytes,
  }
}
