import { sharedBuffer } from '../arena/heap.ts'

const GIVEN = 0
const OVER = 1
const STEPS = 2
const UNCHECKED = 3
const CLOSED = 4
/** Number of 32-bit words for each group. */
const WORDS = 5

/** Allocates shared memory for the epochs of `groups` groups. */
export function createEpochs(groups: number): Int32Array {
  return new Int32Array(sharedBuffer(4 * WORDS * groups))
}

/**
 * The epochs of a group, in memory that the threads of a rank share. Each operation on shared
 * memory gets the next epoch, in the order of the calls. Only one thread at a time enters and
 * completes epochs. It is the engine's thread, or the calling thread while the engine has no work
 * for the group. Epochs are numbered modulo 2^32.
 */
export class Epochs {
  readonly #words: Int32Array
  readonly #at: number

  /** @param words - the memory from `createEpochs` */
  constructor(words: Int32Array, group: number) {
    this.#words = words
    this.#at = group * WORDS
  }

  /** Returns undefined for a group without epochs. */
  static of(words: Int32Array, group: number): Epochs | undefined {
    return group * WORDS < words.length ? new Epochs(words, group) : undefined
  }

  /** The last epoch that was assigned to an operation. */
  get given(): number {
    return this.#words[this.#at + GIVEN]!
  }

  set given(epoch: number) {
    this.#words[this.#at + GIVEN] = epoch
  }

  /** The last epoch that this rank has completed. */
  get over(): number {
    return Atomics.load(this.#words, this.#at + OVER)
  }

  set over(epoch: number) {
    Atomics.store(this.#words, this.#at + OVER, epoch)
  }

  /** Total number of steps of the completed operations, the same on all ranks. */
  get steps(): number {
    return this.#words[this.#at + STEPS]!
  }

  set steps(steps: number) {
    this.#words[this.#at + STEPS] = steps
  }

  /** Whether the previous epoch may have ended before all ranks' calls were compared. */
  get isUnchecked(): boolean {
    return Atomics.load(this.#words, this.#at + UNCHECKED) === 1
  }

  set isUnchecked(isUnchecked: boolean) {
    Atomics.store(this.#words, this.#at + UNCHECKED, isUnchecked ? 1 : 0)
  }

  /** Lets the engine's thread run all operations of the group, because a rank has failed or left. */
  close(): void {
    Atomics.store(this.#words, this.#at + CLOSED, 1)
  }

  get isClosed(): boolean {
    return Atomics.load(this.#words, this.#at + CLOSED) === 1
  }
}
