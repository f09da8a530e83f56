import type { ProcessGroup } from '@tsrun/distributed'
import type { Tensor } from '@tensorflow/tfjs-core'
import { tf } from '../../backend/tensorflow.ts'
import type { AttentionCore } from '../../nn/causal-attention.ts'
import { blockingBackend } from '../tensor/blocking.ts'
import { attendBlock, blockGradients, merge, viewOn, type Partial } from './blocks.ts'
import { Ring, type Pair } from './ring.ts'

/**
 * Causal attention of sequences that the ranks of a group share, each with its zigzag positions (Liu
 * et al., Ring Attention, 2023): keys and values go round the ring while each rank computes with those
 * that it has, so that no rank ever has them all.
 *
 * Of c ranks each sends, in units of its keys: forward 2 (c - 1), backward 4 (c - 1), as the gradients
 * of keys and values travel too.
 */
export function ringAttention(group: ProcessGroup): AttentionCore {
  const { rank, size } = group
  /** Who has made the keys that are here at a step. */
  const view = (step: number) => viewOn((rank - step + size) % size, rank)
  return {
    forward(q, k, v) {
      blockingBackend()
      const ring = new Ring(group, k.shape)
      let here: Pair = [k, v]
      let seen: Partial | undefined
      for (let step = 0; step < size; step++) {
        const next = step < size - 1 ? ring.passKeys(here) : undefined
        const block = attendBlock(q, here[0], here[1], view(step))
        seen = seen === undefined ? block : merge(seen, block)
        if (next !== undefined) here = next()
      }
      ring.finish()
      const { output, logSums } = seen!
      return { output, saved: [q, k, v, output, logSums] }
    },

    backward(dy, saved) {
      const [q, k, v, output, logSums] = saved as [Tensor, Tensor, Tensor, Tensor, Tensor]
      const queries = { q, dy, logSums, products: tf.sum(tf.mul(dy, output), -1, true) }
      const ring = new Ring(group, k.shape)
      let next = size > 1 ? ring.passKeys([k, v]) : undefined
      const own = blockGradients(queries, k, v, view(0))
      let { dq } = own
      // what the other ranks make of keys starts at the one behind their owner and ends with the owner
      for (let step = 1; step < size; step++) {
        const here = next!()
        next = step < size - 1 ? ring.passKeys(here) : undefined
        const earlier = step > 1 ? ring.receiveGradients() : undefined
        const part = blockGradients(queries, here[0], here[1], view(step))
        dq = tf.add(dq, part.dq)
        ring.sendGradients(sum([part.dk, part.dv], earlier?.()))
      }
      const [dk, dv] = sum([own.dk, own.dv], size > 1 ? ring.receiveGradients()() : undefined)
      ring.finish()
      return [dq, dk, dv]
    },
  }
}

function sum([a, b]: Pair, other: Pair | undefined): Pair {
  return other === undefined ? [a, b] : [tf.add(a, other[0]), tf.add(b, other[1])]
}
