import type { ProcessGroup, Work } from '@tsrun/distributed'
import { timeSpan, type SpanFacts } from '@tsrun/distributed/record'
import type { Tensor } from '@tensorflow/tfjs-core'
import { scopedTensorFrom, writeTo } from '../../backend/host-memory.ts'
import { sizeOf } from '../../tfjs/host-arrays.ts'
import { freeAfter } from '../group-buffers.ts'

export type Pair = readonly [Tensor, Tensor]

interface PairBuffer {
  readonly values: Float32Array
  work: Work<unknown> | undefined
}

/**
 * Passes pairs of tensors round a ring of ranks while this rank computes. Each rank sends to the
 * next rank and receives from the previous one. Two buffers suffice for any number of ranks,
 * because at most one pair is sent and one received at a time.
 *
 * Create one ring per pass. All ranks must make the same calls.
 */
export class PairRing {
  readonly #group: ProcessGroup
  readonly #shape: readonly number[]
  readonly #options: { readonly tag: number; readonly label: string }
  readonly #length: number
  #outgoing: PairBuffer
  #incoming: PairBuffer

  /**
   * @param shape - the shape of each tensor
   * @param options - a tag that differs between the rings of a pass, and a label for error messages
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
    this.#outgoing = this.#alloc()
    this.#incoming = this.#alloc()
  }

  /** Starts to send a pair to the next rank. The caller may dispose the pair at once. */
  send([first, second]: Pair): void {
    const { values } = this.#outgoing
    this.#outgoing.work?.wait()
    timeSpan(this.#group.spans, 'pack', this.#facts(values), () => {
      void writeTo(first, values.subarray(0, this.#length))
      void writeTo(second, values.subarray(this.#length))
    })
    this.#start()
  }

  /** Sends the last received pair on to the next rank. */
  forward(): void {
    this.#outgoing.work?.wait()
    const { values } = this.#incoming
    this.#incoming = { values: this.#outgoing.values, work: undefined }
    this.#outgoing = { values, work: undefined }
    this.#start()
  }

  /** Starts to receive a pair from the previous rank. */
  expect(): void {
    const { rank, size } = this.#group
    const from = (rank + size - 1) % size
    this.#incoming.work = this.#group.recv(this.#incoming.values, from, this.#options)
  }

  /** Waits for the pair of the previous rank. The current pass or tf.tidy disposes its tensors. */
  receive(): Pair {
    const { work, values } = this.#incoming
    work?.wait()
    const [first, second] = timeSpan(this.#group.spans, 'unpack', this.#facts(values), () =>
      [0, this.#length].map((from) =>
        scopedTensorFrom(values.subarray(from, from + this.#length), this.#shape),
      ),
    )
    return [first!, second!]
  }

  /** Waits until the last pair has been sent. */
  finish(): void {
    this.#outgoing.work?.wait()
  }

  /** Frees each buffer as soon as no message uses it. Call it after failed passes too. */
  dispose(): void {
    for (const { values, work } of [this.#outgoing, this.#incoming]) {
      freeAfter(work, this.#group, values)
    }
  }

  #start(): void {
    const { rank, size } = this.#group
    this.#outgoing.work = this.#group.send(this.#outgoing.values, (rank + 1) % size, this.#options)
  }

  #facts({ byteLength }: Float32Array): SpanFacts {
    return { name: this.#options.label, bytes: byteLength }
  }

  #alloc(): PairBuffer {
    return { values: this.#group.alloc('float32', 2 * this.#length), work: undefined }
  }
}
