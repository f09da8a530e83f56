import { sharedBuffer } from '../arena/heap.ts'
import type { SlotHeader } from '../transports/shared-slots.ts'

const GIVEN = 0
const OVER = 1
const STEPS = 2
const FLAGS = 3
/** Words of each group. */
const WORDS = 4
/** Flags. */
const UNCHECKED = 1
const FAILED = 2

/** The memory for the epochs of so many groups. */
export function createEpochs(groups: number): Int32Array {
  return new Int32Array(sharedBuffer(4 * WORDS * groups))
}

/**
 * The epochs of a group, which are given to its operations in the order of the calls, in memory that
 * the threads of a rank share. One thread at a time begins and ends epochs: the engine's, or the
 * caller's while the engine has nothing to do for the group. Numbers are modulo 2^32.
 */
export class Epochs {
  readonly #words: Int32Array
  readonly #at: number
  #unchecked: SlotHeader | undefined

  /** @param words - of `createEpochs` */
  constructor(words: Int32Array, group: number) {
    this.#words = words
    this.#at = group * WORDS
  }

  /** The last epoch that was given to an operation. */
  get given(): number {
    return this.#words[this.#at + GIVEN]!
  }

  set given(epoch: number) {
    this.#words[this.#at + GIVEN] = epoch
  }

  /** The last epoch that is over. */
  get over(): number {
    return Atomics.load(this.#words, this.#at + OVER)
  }

  set over(epoch: number) {
    Atomics.store(this.#words, this.#at + OVER, epoch)
  }

  /** Steps that the operations before have taken, the same on all ranks. */
  get steps(): number {
    return this.#words[this.#at + STEPS]!
  }

  set steps(steps: number) {
    this.#words[this.#at + STEPS] = steps
  }

  /**
   * What ran in the epoch before, when it may have ended without comparing all ranks' calls. Only the
   * engine's thread sees it.
   */
  get unchecked(): SlotHeader | undefined {
    return this.#unchecked
  }

  set unchecked(header: SlotHeader | undefined) {
    this.#unchecked = header
    this.#flag(UNCHECKED, header !== undefined)
  }

  /** The group has failed. */
  fail(): void {
    this.#flag(FAILED, true)
  }

  /** Whether a thread other than the engine's may begin the next epoch. */
  get isOpen(): boolean {
    return this.over === this.given && Atomics.load(this.#words, this.#at + FLAGS) === 0
  }

  #flag(flag: number, isSet: boolean): void {
    if (isSet) Atomics.or(this.#words, this.#at + FLAGS, flag)
    else Atomics.and(this.#words, this.#at + FLAGS, ~flag)
  }
}
