import { addressOf } from '@tsrun/native'
import type { MpiAbi } from './abi.ts'

/** A rank's heap as libmpi sees it: addresses of offsets, and the C values that it leaves there. */
export class NativeMemory {
  readonly #base: number
  readonly #abi: MpiAbi
  readonly integers: Int32Array
  readonly #words: Uint32Array

  constructor(bytes: Uint8Array, abi: MpiAbi) {
    this.#base = addressOf(bytes)
    this.#abi = abi
    this.integers = new Int32Array(bytes.buffer)
    this.#words = new Uint32Array(bytes.buffer)
  }

  address(at: number): number {
    return this.#base + at
  }

  integer(at: number): number {
    return this.integers[at / 4]!
  }

  handle(at: number): number {
    if (this.#abi.handleBytes === 4) return this.integers[at / 4]!
    return this.#words[at / 4]! + this.#words[at / 4 + 1]! * 2 ** 32
  }

  putHandle(at: number, handle: number): void {
    this.#words[at / 4] = handle
    if (this.#abi.handleBytes === 8) this.#words[at / 4 + 1] = Math.floor(handle / 2 ** 32)
  }
}
