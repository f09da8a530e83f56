import type { ProcessGroup, Work } from '@tsrun/distributed'
import { timeSpan } from '@tsrun/distributed/record'
import type { Tensor } from '@tensorflow/tfjs-core'
import { scopedTensorFrom, writeTo } from '../../backend/host-memory.ts'
import { sizeOf } from '../../tfjs/host-arrays.ts'
import { freeAfter } from '../group-buffers.ts'

export type Pair = readonly [Tensor, Tensor]

interface PairBuffer {
  readonly values: Float32Array
  work: Work<unknown> | undefined
}

export type PairRing = ReturnType<typeof pairRing>

/**
 * Passes pairs of tensors round a ring of ranks while this rank computes. Each rank sends to the
 * next rank and receives from the previous one. Two buffers suffice for any number of ranks,
 * because at most one pair is sent and one received at a time.
 *
 * Create one ring per pass. All ranks must make the same calls.
 *
 * @param shape - the shape of each tensor
 * @param options - a tag that differs between the rings of a pass, and a label for error messages
 */
export function pairRing(
  group: ProcessGroup,
  shape: readonly number[],
  options: { readonly tag: number; readonly label: string },
) {
  const { rank, size, spans } = group
  const length = sizeOf(shape)
  const facts = { name: options.label, bytes: 8 * length }
  const alloc = (): PairBuffer => ({ values: group.alloc('float32', 2 * length), work: undefined })
  let outgoing = alloc()
  let incoming = alloc()

  const finish = () => {
    outgoing.work?.wait()
  }
  const start = () => {
    outgoing.work = group.send(outgoing.values, (rank + 1) % size, options)
  }
  return {
    /** Starts to send a pair to the next rank. The caller may dispose the pair at once. */
    send([first, second]: Pair) {
      finish()
      timeSpan(spans, 'pack', facts, () => {
        void writeTo(first, outgoing.values.subarray(0, length))
        void writeTo(second, outgoing.values.subarray(length))
      })
      start()
    },

    /** Sends the last received pair on to the next rank. */
    forward() {
      finish()
      const { values } = incoming
      incoming = { values: outgoing.values, work: undefined }
      outgoing = { values, work: undefined }
      start()
    },

    /** Starts to receive a pair from the previous rank. */
    expect() {
      incoming.work = group.recv(incoming.values, (rank + size - 1) % size, options)
    },

    /** Waits for the pair of the previous rank. The current pass or tf.tidy disposes its tensors. */
    receive(): Pair {
      const { work, values } = incoming
      work?.wait()
      const [first, second] = timeSpan(spans, 'unpack', facts, () =>
        [0, length].map((from) => scopedTensorFrom(values.subarray(from, from + length), shape)),
      )
      return [first!, second!]
    },

    /** Waits until the last pair has been sent. */
    finish,

    /** Frees each buffer as soon as no message uses it. Call it after failed passes too. */
    dispose() {
      for (const { values, work } of [outgoing, incoming]) freeAfter(work, group, values)
    },
  }
}
