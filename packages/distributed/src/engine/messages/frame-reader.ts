import { CLOSED } from '../../transports/transport.ts'
import { HEADER_BYTES, isPlausible, readHeader } from './frame.ts'
import type { Link } from './link.ts'

/** Bytes to read ahead for small frames. Large payloads are read directly to their destination. */
const STAGE_BYTES = 64 * 1024
/** Largest number of payload bytes to read in one call, so that sending is not delayed for long. */
const SLICE = 1024 * 1024

/**
 * The destination of a frame's payload. `at` is undefined, or becomes undefined, if the payload is
 * discarded.
 */
export interface Destination {
  at: number | undefined
  readonly onArrived: () => void
}

/** Splits the byte stream from one peer into frames. */
export class FrameReader {
  readonly #link: Link
  readonly #view: DataView
  readonly #stage: number
  /** Unread bytes of the read-ahead buffer: from `#from` up to `#to`. */
  #from = 0
  #to = 0
  #destination: Destination | undefined
  #filled = 0
  #expected = 0
  /** Whether the last read returned less than requested. Another read would then return nothing. */
  #isDry = false
  #closed = false

  constructor(link: Link) {
    this.#link = link
    this.#view = new DataView(link.memory.heap.bytes.buffer)
    this.#stage = link.memory.allocate(STAGE_BYTES)
  }

  /** Reads available bytes, up to a limit. Returns whether anything moved. */
  read(): boolean {
    if (this.#closed) return false
    let moved = false
    let budget = 4 * SLICE
    this.#isDry = false
    while (budget > 0 && this.#mayContinue) {
      const taken =
        this.#destination !== undefined ? this.#readPayload(this.#destination) : this.#readHeader()
      if (taken === 0) break
      if (taken === CLOSED) {
        this.#closed = true
        this.#link.close('lost')
        return true
      }
      moved = true
      budget -= taken
    }
    return moved
  }

  get #mayContinue(): boolean {
    if (!this.#isDry) return true
    return this.#to - this.#from >= (this.#destination === undefined ? HEADER_BYTES : 1)
  }

  #readHeader(): number {
    const staged = this.#to - this.#from
    if (staged < HEADER_BYTES) {
      // If a large payload may come next, reading ahead would cost an extra copy of it.
      const { expectsData } = this.#link.receives
      return this.#fillStage((expectsData ? HEADER_BYTES : STAGE_BYTES) - staged)
    }
    const header = readHeader(this.#view, this.#stage + this.#from)
    if (header === undefined || !isPlausible(header)) {
      this.#link.onGarbage()
      return CLOSED
    }
    this.#from += HEADER_BYTES
    const destination = this.#link.onFrame(header)
    if (destination !== undefined) {
      this.#filled = 0
      this.#expected = header.bytes
      this.#destination = destination
      if (header.bytes === 0) this.#arrive(destination)
    }
    return HEADER_BYTES
  }

  #readPayload(destination: Destination): number {
    const left = this.#expected - this.#filled
    const staged = this.#to - this.#from
    let taken: number
    if (staged > 0) {
      taken = Math.min(left, staged)
      if (destination.at !== undefined) {
        this.#link.memory.copy(destination.at + this.#filled, this.#stage + this.#from, taken)
      }
      this.#from += taken
    } else if (destination.at === undefined) {
      return this.#fillStage(Math.min(left, STAGE_BYTES))
    } else {
      const length = Math.min(left, SLICE)
      taken = this.#link.transport.tryReceive(
        this.#link.peer,
        destination.at + this.#filled,
        length,
      )
      this.#isDry = taken < length
      if (taken <= 0) return taken
      this.#link.traffic.bytesReceived += taken
    }
    this.#filled += taken
    if (this.#filled === this.#expected) this.#arrive(destination)
    return taken
  }

  #fillStage(wanted: number): number {
    if (this.#from > 0) {
      this.#link.memory.copy(this.#stage, this.#stage + this.#from, this.#to - this.#from)
      this.#to -= this.#from
      this.#from = 0
    }
    const length = Math.min(wanted, STAGE_BYTES - this.#to)
    const taken = this.#link.transport.tryReceive(this.#link.peer, this.#stage + this.#to, length)
    this.#isDry = taken < length
    if (taken > 0) {
      this.#to += taken
      this.#link.traffic.bytesReceived += taken
    }
    return taken
  }

  #arrive(destination: Destination): void {
    this.#destination = undefined
    destination.onArrived()
  }
}
