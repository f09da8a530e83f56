import { Credit } from './credit.ts'
import { frameKinds, type FrameHeader } from './frame.ts'
import type { Fingerprint } from '../operation.ts'
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

/** Where the payload of an offer is, in the sender's heap. */
interface Offered {
  readonly place: number
  readonly guard: number
}

const NOWHERE: Address = { space: 0, group: 0, sequence: 0 }
export const ABOUT_NOTHING: About = { index: 0, fingerprint: NOTHING, bytes: 0 }
const NOT_OFFERED: Offered = { place: 0, guard: 0 }

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

  /** Says where a payload can be copied from. */
  writeOffer(address: Address, about: About, offered: Offered): void {
    if (this.#ended) return
    this.#outbound.pushHeader(this.#header(frameKinds.offer, address, about, offered))
  }

  /** Says that the payload of an offer is no longer needed. */
  writeFetched(guard: number): void {
    this.#writeAboutOffer(frameKinds.fetched, guard)
  }

  /** Says that an offer is taken back. */
  writeWithdrawnOffer(guard: number): void {
    this.#writeAboutOffer(frameKinds.withdrawn, guard)
  }

  /** A header and a payload that leaves straight from its place. */
  writeData(transfer: Transfer): void {
    this.#outbound.pushDirect(this.#header(frameKinds.data, transfer.stream, transfer), transfer)
  }

  /** Lets go of a payload's place. Returns whether nothing of it had left, and nothing will. */
  withdrawData(transfer: Transfer): boolean {
    return this.#outbound.withdraw(transfer)
  }

  /** The payload says what is wrong, or what ranks tell each other. */
  writeText(kind: number, address: Address, payload: Uint8Array): void {
    if (this.#ended) return
    const about = { ...ABOUT_NOTHING, bytes: payload.length }
    this.#outbound.pushBytes(this.#header(kind, address, about), payload)
  }

  /** A frame that belongs to no message. */
  writeBare(kind: number): void {
    this.#outbound.pushHeader(this.#header(kind, NOWHERE, ABOUT_NOTHING))
  }

  #writeAboutOffer(kind: number, guard: number): void {
    if (this.#ended) return
    const answered = { place: 0, guard }
    this.#outbound.pushHeader(this.#header(kind, NOWHERE, ABOUT_NOTHING, answered))
  }

  #header(
    kind: number,
    { space, group, sequence }: Address,
    { index, fingerprint, bytes }: About,
    { place, guard }: Offered = NOT_OFFERED,
  ): FrameHeader {
    const credit = this.#credit.tell()
    return { kind, space, group, sequence, index, fingerprint, bytes, credit, place, guard }
  }
}
