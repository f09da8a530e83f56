import { HEADER_BYTES, headerWord, rankStates, SLOT_BYTES, slotNumber, slotText } from './layout.ts'
import type { RankState } from './layout.ts'

const encoder = new TextEncoder()

/** The slot of one rank, for the rank itself: its threads write what they know, without locks. */
export class StatusSlot {
  readonly buffer: SharedArrayBuffer
  readonly index: number
  readonly #words: Int32Array
  readonly #numbers: Float64Array

  constructor(buffer: SharedArrayBuffer, index: number) {
    const at = HEADER_BYTES + index * SLOT_BYTES
    this.buffer = buffer
    this.index = index
    this.#words = new Int32Array(buffer)
    this.#numbers = new Float64Array(buffer, at, Object.keys(slotNumber).length)
  }

  /** The rank whose end ends the job, as its launcher says; undefined while it goes on. */
  get abortedBy(): number | undefined {
    const word = this.#words[headerWord.abort]!
    return word === 0 ? undefined : word - 1
  }

  set(name: keyof typeof slotNumber, value: number): void {
    this.#numbers[slotNumber[name]] = value
  }

  setState(state: RankState, since: number): void {
    this.#numbers[slotNumber.state] = rankStates.indexOf(state)
    this.#numbers[slotNumber.since] = since
  }

  setText(name: keyof typeof slotText, text: string): void {
    this.setBytes(name, encoder.encode(text))
  }

  /** A text that was encoded before; cut to its room. */
  setBytes(name: keyof typeof slotText, text: Uint8Array): void {
    const { at, bytes } = slotText[name]
    const start = HEADER_BYTES + this.index * SLOT_BYTES + at
    const cut = text.length <= bytes - 4 ? text : text.subarray(0, bytes - 4)
    this.#words[start / 4] = cut.length
    new Uint8Array(this.buffer).set(cut, start + 4)
  }
}
