import type { ProcessGroup } from '@tsrun/distributed'
import type { Tensor } from '@tensorflow/tfjs-core'
import { tf } from '../../tfjs/tfjs.ts'
import type { AttentionCore } from '../../nn/causal-attention.ts'
import { blockingBackend } from '../blocking.ts'
import { attendBlock, blockGradients, merge, viewOn, type Partial } from './blocks.ts'
import { Ring, type Pair } from './ring.ts'

/**
 * Causal attention of sequences that the ranks of a group share, each with its zigzag positions (Liu
 * et al., Ring Attention, 2023): keys and values go round the ring while each rank computes with those
 * that it has. A rank holds one pair of them beside its own, and the scores of its queries for one
 * rank's keys, however many ranks there are.
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
      const keys = new Ring(group, k.shape, KEYS)
      try {
        let seen = startRound(keys, [k, v], () => attendTo([k, v], 0))
        for (let step = 1; step < size; step++) {
          const here = nextPair(keys, step < size - 1)
          seen = replace(seen, () => attendTo(here, step, seen))
          tf.dispose([...here])
        }
        keys.finish()
        const [output, logSums] = seen
        return { output, saved: [q, k, v, output, logSums] }
      } finally {
        keys.dispose()
      }

      function attendTo([k, v]: Pair, step: number, before?: Pair): Pair {
        const block = attendBlock(q, k, v, view(step))
        const { output, logSums } = before === undefined ? block : merge(partial(before), block)
        return [output, logSums]
      }
    },

    backward(dy, saved) {
      const [q, k, v, output, logSums] = saved as [Tensor, Tensor, Tensor, Tensor, Tensor]
      const products = tf.tidy(() => tf.sum(tf.mul(dy, output), -1, true))
      const queries = { q, dy, logSums, products }
      const keys = new Ring(group, k.shape, KEYS)
      const gradients = new Ring(group, k.shape, GRADIENTS)
      try {
        const own = startRound(keys, [k, v], () => gradientsOf([k, v], 0))
        let [dq] = own
        // what the other ranks make of keys starts at the one behind their owner and ends with the owner
        for (let step = 1; step < size; step++) {
          const here = nextPair(keys, step < size - 1)
          if (step > 1) gradients.expect()
          const [part, dk, dv] = tf.tidy(() => gradientsOf(here, step))
          tf.dispose([...here])
          ;[dq] = replace([dq], () => [tf.add(dq, part)])
          part.dispose()
          const made = step > 1 ? sum([dk, dv], gradients.receive()) : ([dk, dv] as const)
          gradients.send(made)
          tf.dispose([...made])
        }
        gradients.expect()
        const [dk, dv] = sum([own[1], own[2]], gradients.receive())
        keys.finish()
        gradients.finish()
        return [dq, dk, dv]
      } finally {
        keys.dispose()
        gradients.dispose()
      }

      function gradientsOf([k, v]: Pair, step: number): [Tensor, Tensor, Tensor] {
        const { dq, dk, dv } = blockGradients(queries, k, v, view(step))
        return [dq, dk, dv]
      }
    },
  }
}

const KEYS = { tag: 1, label: 'ring attention: keys and values' }
const GRADIENTS = { tag: 2, label: 'ring attention: gradients of keys and values' }

const partial = ([output, logSums]: Pair): Partial => ({ output, logSums })

/** Sends the pair of this rank off, and computes with it. */
function startRound<T extends readonly Tensor[]>(ring: Ring, pair: Pair, compute: () => T): T {
  ring.send(pair)
  ring.expect()
  return tf.tidy(compute as () => T & Tensor[])
}

/** The pair of the previous rank, which goes on while it is used unless it has been everywhere. */
function nextPair(ring: Ring, goesOn: boolean): Pair {
  const pair = ring.receive()
  if (goesOn) {
    ring.pass()
    ring.expect()
  }
  return pair
}

/** What is made of tensors, which are freed. */
function replace<T extends readonly Tensor[]>(old: T, make: () => T): T {
  const next = tf.tidy(make as () => T & Tensor[])
  tf.dispose([...old])
  return next
}

/** The sums of two pairs, which are freed. */
function sum(a: Pair, b: Pair): Pair {
  const [first, second] = tf.tidy((): Tensor[] => [tf.add(a[0], b[0]), tf.add(a[1], b[1])])
  tf.dispose([...a, ...b])
  return [first!, second!]
}
