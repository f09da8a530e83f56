import type { ProcessGroup, Work } from '@tsrun/distributed'
import type { Tensor } from '@tensorflow/tfjs-core'
import { tensorFrom, writeTo } from '../../backend/host-memory.ts'

const [KEYS, GRADIENTS] = [1, 2]

/** Two tensors of one shape. */
export type Pair = readonly [Tensor, Tensor]

/**
 * Pairs of tensors on their way round a ring of ranks, each to the next one, while this rank computes.
 * For one pass; all ranks make the same calls.
 */
export class Ring {
  readonly #group: ProcessGroup
  readonly #shape: readonly number[]
  readonly #length: number
  readonly #works: Work[] = []
  readonly #buffers: Float32Array[] = []

  /** @param shape - of each tensor */
  constructor(group: ProcessGroup, shape: readonly number[]) {
    this.#group = group
    this.#shape = shape
    this.#length = shape.reduce((product, extent) => product * extent, 1)
  }

  /** Sends keys and values on; returns how to get those of the previous rank. */
  passKeys(pair: Pair): () => Pair {
    this.#send(pair, KEYS)
    return this.#receive(KEYS)
  }

  /** Sends gradients of keys and values on, to where these went. */
  sendGradients(pair: Pair): void {
    this.#send(pair, GRADIENTS)
  }

  /** Starts to take those of the previous rank; returns how to get them. */
  receiveGradients(): () => Pair {
    return this.#receive(GRADIENTS)
  }

  /** Waits until all that was sent has left. */
  finish(): void {
    for (const work of this.#works) work.wait()
    for (const buffer of this.#buffers) this.#group.free(buffer)
  }

  #send([first, second]: Pair, tag: number): void {
    const buffer = this.#allocate()
    void writeTo(first, buffer.subarray(0, this.#length))
    void writeTo(second, buffer.subarray(this.#length))
    const next = (this.#group.rank + 1) % this.#group.size
    this.#works.push(this.#group.send(buffer, next, { tag }))
  }

  #receive(tag: number): () => Pair {
    const buffer = this.#allocate()
    const { rank, size } = this.#group
    const work = this.#group.recv(buffer, (rank + size - 1) % size, { tag })
    return () => {
      work.wait()
      const [first, second] = [0, this.#length].map((from) => {
        const tensor = tensorFrom(buffer.subarray(from, from + this.#length), this.#shape)
        // it ends with the pass
        tensor.kept = false
        return tensor
      })
      return [first!, second!]
    }
  }

  #allocate(): Float32Array {
    const buffer = this.#group.alloc('float32', 2 * this.#length)
    this.#buffers.push(buffer)
    return buffer
  }
}
