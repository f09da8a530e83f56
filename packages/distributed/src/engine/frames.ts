import { Credit } from './credit.ts'
import { frameKinds, type FrameHeader } from './frame.ts'
import type { Fingerprint } from './operation.ts'
import type { Outbound } from './outbound.ts'
import type { Transfer } from './transfer.ts'

const NOTHING: Fingerprint = { kind: 0, root: 0, count: 0 }

/** The stream of messages that a frame belongs to. */
interface Address {
  readonly space: number
  readonly group: number
  readonly sequence: number
}

/** What a frame says about its message. */
interface About {
  readonly index: number
  readonly fingerprint: Fingerprint
  readonly bytes: number
}

const NOWHERE: Address = { space: 0, group: 0, sequence: 0 }
const ABOUT_NOTHING: About = { index: 0, fingerprint: NOTHING, bytes: 0 }

/** Writes the frames of one link, each with the flow control of the other direction. */
export class Frames {
  readonly #outbound: Outbound
  readonly #credit = new Credit()
  /** After it nothing more is written. */
  #ended = false

  constructor(outbound: Outbound) {
    this.#outbound = outbound
  }

  end(): void {
    this.#ended = true
  }

  /** Calls `push` as soon as the peer has room for a frame with `payload` bytes. */
  spend(payload: number, push: () => void, isWanted: () => boolean): void {
    this.#credit.spend(payload, push, isWanted)
  }

  /** A frame came: takes over what the peer has consumed. */
  onCredit(consumedByPeer: number): void {
    this.#credit.update(consumedByPeer)
  }

  /** Counts a frame of the peer as consumed, and tells it when it may be waiting for that. */
  consume(payload: number): void {
    if (this.#credit.consume(payload) && !this.#ended) this.writeBare(frameKinds.credit)
  }

  writeEager(transfer: Transfer): void {
    this.#outbound.pushCopied(
      this.#header(frameKinds.eager, transfer.stream, transfer),
      transfer.at,
    )
  }

  writeHeader(kind: number, transfer: Transfer): void {
    this.#outbound.pushHeader(this.#header(kind, transfer.stream, transfer))
  }

  writeData(transfer: Transfer): void {
    this.#outbound.pushDirect(this.#header(frameKinds.data, transfer.stream, transfer), transfer)
  }

  /** The payload, `bytes` bytes at `at`, says what is wrong. */
  writeFault(address: Address, at: number, bytes: number): void {
    const header = this.#header(frameKinds.fault, address, { ...ABOUT_NOTHING, bytes })
    if (!this.#ended) this.#outbound.pushCopied(header, at)
  }

  /** A frame that belongs to no message. */
  writeBare(kind: number): void {
    this.#outbound.pushHeader(this.#header(kind, NOWHERE, ABOUT_NOTHING))
  }

  #header(
    kind: number,
    { space, group, sequence }: Address,
    { index, fingerprint, bytes }: About,
  ): FrameHeader {
    return { kind, space, group, sequence, index, fingerprint, bytes, credit: this.#credit.tell() }
  }
}
