/*
 * The status page is a file that the launcher of a host creates and all its ranks map. All numbers
 * are little-endian. The page consists of a header, a slot for each rank of the host, and link
 * counters. Each rank of the host has link counters for every world rank. Ranks write plain words
 * without locks, so the page can be read while a rank is blocked and after it has ended.
 */

/** The name by which `tsrun ps` finds the file among the open files of a launcher. */
export const STATUS_NAME = 'tsrun-status'
/** The characters "TSP3", little-endian. */
export const STATUS_MAGIC = 0x33505354

/** Bytes of the header of a status page. */
export const STATUS_HEADER_BYTES = 4096
/** Bytes of the slot of one rank. */
export const STATUS_SLOT_BYTES = 1024
/** The page size of a WebAssembly.Memory. Ranks map the file over such a memory. */
const PAGE_BYTES = 65536

/** Index of each double in the counters of a link. */
export const linkNumber = {
  bytesSent: 0,
  bytesReceived: 1,
  framesSent: 2,
  sharesMemory: 3,
} as const
/** The number of doubles in the counters of a link; see `linkNumber`. */
export const LINK_NUMBERS = 4

/** The dimensions of a page. Each rank of the host has a slot, and a link to each rank of the world. */
export interface StatusSize {
  readonly slots: number
  readonly worldSize: number
}

/** Bytes of a status page, rounded up to whole pages of a WebAssembly.Memory. */
export function statusBytes({ slots, worldSize }: StatusSize): number {
  const bytes = linksAt({ slots, worldSize }, slots)
  return Math.ceil(bytes / PAGE_BYTES) * PAGE_BYTES
}

/** Returns the offset in bytes of a rank's link counters. */
export function linksAt({ slots, worldSize }: StatusSize, index: number): number {
  return STATUS_HEADER_BYTES + slots * STATUS_SLOT_BYTES + index * worldSize * LINK_NUMBERS * 8
}

/** Index of each 32-bit word of the header. */
export const headerWord = {
  magic: 0,
  slots: 1,
  launcherPid: 2,
  worldSize: 3,
  restartCount: 4,
  /** 0 while the job runs; otherwise 1 + the rank because of which the job stops. */
  abort: 5,
} as const

/** The texts of the header. Each is a 32-bit length, followed by UTF-8. */
export const headerText = {
  runId: { at: 64, bytes: 128 },
  script: { at: 256, bytes: 512 },
  socket: { at: 768, bytes: 256 },
} as const

/** Index of each double of a slot. */
export const slotNumber = {
  pid: 0,
  rank: 1,
  /** Index of the state in `rankStates`. */
  state: 2,
  /** The sequence number of the current or last operation. */
  sequence: 3,
  bytes: 4,
  /** When the current state began, by `monotonicNow()`. */
  since: 5,
  running: 6,
  /** The number of operations that have ended. */
  ended: 7,
  step: 8,
  loss: 9,
  /** 1 + the id of the group whose name is in the slot; 0 means none. */
  group: 10,
  /** The number of steps that were reported. */
  steps: 11,
  /** Total milliseconds of completed operations, from call to end. Each thread has its own sum. */
  engineTime: 12,
  callerTime: 13,
  /** Total milliseconds until the first message of an operation moved. */
  waitTime: 14,
  /** Total buffer bytes of the engine's operations. */
  engineBytes: 15,
  /** The fingerprint of the current or last operation; `kind` is 0 before the first one. */
  kind: 16,
  root: 17,
  count: 18,
  /** Total buffer bytes of operations on the calling thread. The texts end before index 96. */
  callerBytes: 96,
  /** Index in `rankEnds`, which the launcher writes; 0 while the process runs. */
  end: 97,
  /** Milliseconds outside of operations, up to the start of the last operation. */
  ownTime: 98,
  /** The step at which training ends; 0 means unknown. */
  of: 99,
} as const

/** The texts of a slot. Each is a 32-bit length, followed by UTF-8. */
const slotText = {
  group: { at: 384, bytes: 128 },
  waitsFor: { at: 512, bytes: 256 },
} as const

/**
 * The states of a rank. `running` means that the rank is outside of operations: it computes, waits
 * for data, or sleeps.
 */
export const rankStates = ['starting', 'running', 'operation', 'left'] as const
/** The state of a rank; see `rankStates`. */
export type RankState = (typeof rankStates)[number]
/**
 * How a rank has ended. `died` means that it failed on its own, not because another rank failed.
 */
export const rankEnds = [undefined, 'ended', 'died'] as const
/** How a rank has ended; see `rankEnds`. */
export type RankFate = NonNullable<(typeof rankEnds)[number]>

const encoder = new TextEncoder()
const decoder = new TextDecoder()

/** The slot of one rank. The threads of that rank write to it without locks. */
export class StatusSlot {
  readonly buffer: ArrayBufferLike
  readonly index: number
  /** The doubles of the slot, at the indexes of `slotNumber`. */
  readonly numbers: Float64Array
  readonly #words: Int32Array
  readonly #bytes: Uint8Array

  /** @param buffer - the mapped page, or a copy of it */
  constructor(buffer: ArrayBufferLike, index: number) {
    const at = STATUS_HEADER_BYTES + index * STATUS_SLOT_BYTES
    this.buffer = buffer
    this.index = index
    this.#words = new Int32Array(buffer)
    this.#bytes = new Uint8Array(buffer)
    this.numbers = new Float64Array(buffer, at, STATUS_SLOT_BYTES / 8)
  }

  /** The rank because of which the job stops; undefined while the job runs. */
  get abortedBy(): number | undefined {
    const word = this.#words[headerWord.abort]!
    return word === 0 ? undefined : word - 1
  }

  set(name: keyof typeof slotNumber, value: number): void {
    this.numbers[slotNumber[name]] = value
  }

  add(name: keyof typeof slotNumber, value: number): void {
    this.numbers[slotNumber[name]]! += value
  }

  setState(state: RankState, since: number): void {
    this.numbers[slotNumber.state] = rankStates.indexOf(state)
    this.numbers[slotNumber.since] = since
  }

  text(name: keyof typeof slotText): string | undefined {
    return readText(this.#bytes, this.numbers.byteOffset, slotText[name])
  }

  /** Writes a text, truncated to the size of its field. */
  setText(name: keyof typeof slotText, text: string): void {
    const { at, bytes } = slotText[name]
    const start = this.numbers.byteOffset + at
    const cut = encoder.encode(text).subarray(0, bytes - 4)
    this.#words[start / 4] = cut.length
    this.#bytes.set(cut, start + 4)
  }

  /** Returns the counters of the links to `worldSize` ranks; undefined if the page is too small. */
  links(worldSize: number): Float64Array | undefined {
    const size = {
      slots: this.#words[headerWord.slots]!,
      worldSize: this.#words[headerWord.worldSize]!,
    }
    if (this.index >= size.slots || worldSize > size.worldSize) return undefined
    return new Float64Array(this.buffer, linksAt(size, this.index), worldSize * LINK_NUMBERS)
  }
}

/**
 * Reads a text of the page, whose fields start at `base`. Returns undefined if the length is out of
 * range: the rank is then writing the text at this moment.
 */
export function readText(
  bytes: Uint8Array,
  base: number,
  { at, bytes: room }: { readonly at: number; readonly bytes: number },
): string | undefined {
  const start = base + at
  const length = new DataView(bytes.buffer, bytes.byteOffset).getInt32(start, true)
  if (length <= 0 || length > room - 4) return undefined
  // Copy the text, because decoders reject shared memory.
  return decoder.decode(bytes.slice(start + 4, start + 4 + length))
}
