import type { ProcessGroup, Work } from '@tsrun/distributed'
import type { Tensor } from '@tensorflow/tfjs-core'
import { scopedTensorFrom, writeTo } from '../../backend/host-memory.ts'
import { sizeOf } from '../../tfjs/host-arrays.ts'
import { freeAfter } from '../lent-buffers.ts'

/** Two tensors of one shape. */
export type Pair = readonly [Tensor, Tensor]

interface Slot {
  readonly buffer: Float32Array
  work: Work<unknown> | undefined
}

/**
 * Pairs of tensors on their way round a ring of ranks, each to the next one, while this rank computes:
 * one pair leaves and one comes at a time, in two buffers, however many ranks there are.
 *
 * For one pass; all ranks make the same calls.
 */
export class Ring {
  readonly #group: ProcessGroup
  readonly #shape: readonly number[]
  readonly #options: { readonly tag: number; readonly label: string }
  readonly #length: number
  #outgoing: Slot
  #incoming: Slot

  /**
   * @param shape - of each tensor
   * @param options - a tag of its own for each ring of a pass; the label stands first in errors
   */
  constructor(
    group: ProcessGroup,
    shape: readonly number[],
    options: { readonly tag: number; readonly label: string },
  ) {
    this.#group = group
    this.#shape = shape
    this.#options = options
    this.#length = sizeOf(shape)
    this.#outgoing = this.#slot()
    this.#incoming = this.#slot()
  }

  /** Sends a pair on; it can be disposed at once. */
  send([first, second]: Pair): void {
    const { buffer } = this.#outgoing
    this.#outgoing.work?.wait()
    void writeTo(first, buffer.subarray(0, this.#length))
    void writeTo(second, buffer.subarray(this.#length))
    this.#depart()
  }

  /** Sends on what came last, as it came. */
  pass(): void {
    this.#outgoing.work?.wait()
    const { buffer } = this.#incoming
    this.#incoming = { buffer: this.#outgoing.buffer, work: undefined }
    this.#outgoing = { buffer, work: undefined }
    this.#depart()
  }

  /** Starts to take the pair of the previous rank. */
  expect(): void {
    const { rank, size } = this.#group
    const from = (rank + size - 1) % size
    this.#incoming.work = this.#group.recv(this.#incoming.buffer, from, this.#options)
  }

  /** The pair that was expected, as soon as it is here; it ends with the pass or tf.tidy under way. */
  receive(): Pair {
    const { work, buffer } = this.#incoming
    work?.wait()
    const [first, second] = [0, this.#length].map((from) =>
      scopedTensorFrom(buffer.subarray(from, from + this.#length), this.#shape),
    )
    return [first!, second!]
  }

  /** Waits until all that was sent has left. */
  finish(): void {
    this.#outgoing.work?.wait()
  }

  /** Gives the buffers back, whatever has become of the pass. */
  dispose(): void {
    for (const { buffer, work } of [this.#outgoing, this.#incoming]) {
      freeAfter(work, this.#group, buffer)
    }
  }

  #depart(): void {
    const { rank, size } = this.#group
    this.#outgoing.work = this.#group.send(this.#outgoing.buffer, (rank + 1) % size, this.#options)
  }

  #slot(): Slot {
    return { buffer: this.#group.alloc('float32', 2 * this.#length), work: undefined }
  }
}
