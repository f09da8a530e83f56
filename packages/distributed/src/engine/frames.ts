import { Credit } from './credit.ts'
import { frameKinds, type FrameHeader } from './frame.ts'
import type { Fingerprint } from './operation.ts'
import type { Outbound } from './outbound.ts'
import type { Transfer } from './transfer.ts'

const NOTHING: Fingerprint = { kind: 0, root: 0, count: 0 }

/** The stream of messages that a frame belongs to. */
export interface Address {
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

  /** A frame came: takes over what the peer has consumed. */
  onCredit(consumedByPeer: number): void {
    this.#credit.update(consumedByPeer)
  }

  /** Counts an eager frame as consumed, and tells the peer when it may need to know. */
  consume(payload: number): void {
    if (this.#credit.consume(payload) && !this.#ended) this.writeBare(frameKinds.credit)
  }

  /** A header and its payload, copied; false when the peer has no room. */
  tryWriteEager(transfer: Transfer): boolean {
    if (!this.#credit.trySpend(transfer.bytes)) return false
    const header = this.#header(frameKinds.eager, transfer.stream, transfer)
    this.#outbound.pushCopied(header, transfer.at)
    return true
  }

  /** A header about a message. */
  write(kind: number, address: Address, about: About): void {
    if (!this.#ended) this.#outbound.pushHeader(this.#header(kind, address, about))
  }

  /** A header and a payload that leaves straight from its place. */
  writeData(transfer: Transfer): void {
    this.#outbound.pushDirect(this.#header(frameKinds.data, transfer.stream, transfer), transfer)
  }

  /** Lets go of a payload's place. Returns whether nothing of it had left, and nothing will. */
  withdrawData(transfer: Transfer): boolean {
    return this.#outbound.withdraw(transfer)
  }

  /** The payload says what is wrong. */
  writeFault(address: Address, payload: Uint8Array): void {
    if (this.#ended) return
    const about = { ...ABOUT_NOTHING, bytes: payload.length }
    this.#outbound.pushBytes(this.#header(frameKinds.fault, address, about), payload)
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
