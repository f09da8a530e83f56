/** Where the low end of the heap keeps what libmpi reads and writes. Offsets in bytes. */

/** The first 128 bytes. */
export const low = {
  /** Operations whose buffers libmpi still holds, though they have failed; see `hasAbandoned`. */
  abandoned: 0,
  flag: 8,
  count: 16,
  handle: 24,
  status: 64,
} as const

const SMALL_BYTES = 128
/** Receives from any rank that are posted at a time. */
const RECEIVES = 8
/** Sends to one rank that are on their way at a time. */
export const SENDS = 2
const REQUEST_BYTES = 8
const LARGEST_SLOT = 64 * 1024
const SMALLEST_SLOT = 4096

/** Room for one message, and for its request. */
interface Slot {
  readonly data: number
  readonly request: number
}

export interface Layout {
  readonly slotBytes: number
  readonly receives: readonly Slot[]
  /** SENDS for each rank. */
  readonly sends: readonly Slot[]
  readonly end: number
}

/** Takes at most a quarter of the engine's part of the heap; undefined when that is too little. */
export function layOut(worldSize: number, engineBytes: number): Layout | undefined {
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
    sends: all.slice(RECEIVES),
    end: dataAt + slots * slotBytes,
  }
}
