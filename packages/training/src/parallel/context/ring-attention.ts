import { argumentError } from '@tsrun/core'
import type { ProcessGroup, Work } from '@tsrun/distributed'
import { timeSpan } from '@tsrun/distributed/record'
import type { TensorContainer } from '@tensorflow/tfjs-core'
import { scopedTensorFrom, writeTo } from '../../backend/host-memory.ts'
import {
  attend,
  attendAgain,
  MASKED,
  times,
  type AttentionCore,
  type Mask,
} from '../../nn/attention.ts'
import type { ProbabilityMask } from '../../nn/dropout.ts'
import { sizeOf } from '../../tfjs/host-arrays.ts'
import { tf, type Tensor } from '../../tfjs/tfjs.ts'
import { freeAfter } from '../group-buffers.ts'
import { checkBackendBlocks, checkGroup } from '../requirements.ts'

/** The rank of a process in its group, and the size of the group. */
export interface Place {
  readonly rank: number
  readonly size: number
}

/**
 * Returns the positions of a sequence that a rank computes in context parallel training. The sequence is
 * divided into 2 x size equal sections. A rank has the sections with the indices `rank` and `2 x size - 1
 * - rank`. Under causal attention late sections are more work than early ones, so this pairing balances
 * the work.
 *
 * A group of one rank has all positions.
 *
 * @param length - the length of the whole sequence
 * @throws ERR_TSR_ARGUMENT without a group, or when the length is not a multiple of 2 x size and
 *   the group has several ranks
 * @example zigzagPositions(8, { rank: 0, size: 2 }) // [0, 1, 6, 7]
 */
export function zigzagPositions(length: number, place: Place): Int32Array {
  checkGroup(place)
  const { rank, size } = place
  const sections = size === 1 ? 1 : 2 * size
  const section = length / sections
  if (!(Number.isSafeInteger(section) && section > 0)) {
    throw argumentError(
      'the length of a sequence',
      length,
      `a positive multiple of ${sections} for a group of ${size}`,
    )
  }
  const late = sections - 1 - rank
  return Int32Array.from({ length: length / size }, (_, i) =>
    i < section ? rank * section + i : (late - 1) * section + i,
  )
}

/**
 * Causal attention for sequences that are divided among the ranks of a group by zigzag positions (Liu et
 * al., Ring Attention, 2023). Keys and values are sent round a ring. Meanwhile each rank computes
 * attention to the keys and values that it has received. The memory of a rank does not grow with the
 * number of ranks: besides its own keys and values, it holds those of one other rank.
 *
 * With c ranks, each rank sends 2 (c - 1) times the size of its keys in the forward pass. The backward
 * pass also sends the gradients of keys and values: 4 (c - 1) times the size.
 */
export function ringAttention(group: ProcessGroup): AttentionCore {
  const { rank, size } = group
  /** Returns the part of the attention between this rank's queries and the keys received in a step. */
  const view = (step: number) => viewOn((rank - step + size) % size, rank)
  const keptAt = (step: number, { shape }: Tensor, mask?: ProbabilityMask) => {
    if (mask === undefined) return undefined
    const [batch, heads, own] = shape as [number, number, number]
    const seen = view(step)
    const length = own * size
    const queries = positionsOf({ rank, size }, length, seen.queries)
    const keys = positionsOf({ rank: (rank - step + size) % size, size }, length, seen.keys)
    return mask({ shape: [batch, heads, queries.length, keys.length], queries, keys, length })
  }
  return {
    dividesSequences: true,
    forward(q, k, v, mask) {
      checkBackendBlocks()
      const keys = pairRing(group, k.shape, KEYS)
      try {
        let seen = startRound(keys, [k, v], () => attendTo([k, v], 0))
        for (let step = 1; step < size; step++) {
          const here = nextPair(keys, step < size - 1)
          seen = replace(seen, () => attendTo(here, step, seen))
          tf.dispose([...here])
        }
        keys.finish()
        const { output, logSums } = seen
        return { output, saved: [q, k, v, output, logSums] }
      } finally {
        keys.dispose()
      }

      function attendTo([k, v]: Pair, step: number, before?: Partial): Partial {
        const block = attendBlock(q, k, v, view(step), keptAt(step, q, mask))
        return before === undefined ? block : merge(before, block)
      }
    },

    backward(dy, saved, mask) {
      const [q, k, v, output, logSums] = saved as [Tensor, Tensor, Tensor, Tensor, Tensor]
      const products = tf.tidy(() => tf.sum(tf.mul(dy, output), -1, true))
      const queries = { q, dy, logSums, products }
      const keys = pairRing(group, k.shape, KEYS)
      const gradients = pairRing(group, k.shape, GRADIENTS)
      try {
        const own = startRound(keys, [k, v], () => gradientsOf([k, v], 0))
        let { dq } = own
        // The gradients of a rank's keys travel round the ring, starting at the next rank. Each
        // rank adds its contribution, and the last step returns them to their owner.
        for (let step = 1; step < size; step++) {
          const here = nextPair(keys, step < size - 1)
          if (step > 1) gradients.expect()
          const part = tf.tidy(() => gradientsOf(here, step))
          tf.dispose([...here])
          dq = replace(dq, () => tf.add(dq, part.dq))
          part.dq.dispose()
          const pair = [part.dk, part.dv] as const
          const made = step > 1 ? sum(pair, gradients.receive()) : pair
          gradients.send(made)
          tf.dispose([...made])
        }
        gradients.expect()
        const [dk, dv] = sum([own.dk, own.dv], gradients.receive())
        keys.finish()
        gradients.finish()
        return [dq, dk, dv]
      } finally {
        keys.dispose()
        gradients.dispose()
      }

      function gradientsOf([k, v]: Pair, step: number) {
        return blockGradients(queries, k, v, view(step), keptAt(step, q, mask))
      }
    },
  }
}

const KEYS = { tag: 1, label: 'ring attention: keys and values' }
const GRADIENTS = { tag: 2, label: 'ring attention: gradients of keys and values' }

function positionsOf(place: Place, length: number, part: Part) {
  const all = zigzagPositions(length, place)
  if (part === 'all') return all
  const middle = all.length / 2
  return part === 'early' ? all.subarray(0, middle) : all.subarray(middle)
}

type Pair = readonly [Tensor, Tensor]

interface PairBuffer {
  readonly values: Float32Array
  work: Work<unknown> | undefined
}

type PairRing = ReturnType<typeof pairRing>

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
function pairRing(
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

    /** Waits for the previous rank's pair. The current pass or tf.tidy disposes the returned tensors. */
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

/** Starts to send this rank's pair and to receive the previous rank's pair, then calls `compute`. */
function startRound<T extends TensorContainer>(ring: PairRing, pair: Pair, compute: () => T) {
  ring.send(pair)
  ring.expect()
  return tf.tidy(compute)
}

/**
 * Waits for the pair of the previous rank. If `goesOn` is true, forwards the pair and starts to
 * receive another.
 */
function nextPair(ring: PairRing, goesOn: boolean): Pair {
  const pair = ring.receive()
  if (goesOn) {
    ring.forward()
    ring.expect()
  }
  return pair
}

function replace<T extends TensorContainer>(old: T, make: () => T) {
  const next = tf.tidy(make)
  tf.dispose(old)
  return next
}

function sum(a: Pair, b: Pair): Pair {
  const [first, second] = tf.tidy((): Tensor[] => [tf.add(a[0], b[0]), tf.add(a[1], b[1])])
  tf.dispose([...a, ...b])
  return [first!, second!]
}

/*
 * Attention with an online softmax (Milakov & Gimelshein, 2018; Dao et al., FlashAttention, 2022): keys and
 * values come in blocks, one from each rank. Tensors have the shape [batch, heads, length, size].
 */

/** Attention over the keys seen so far: the output, and the log-sum-exp of the scores [..., length, 1]. */
type Partial = Readonly<Record<'output' | 'logSums', Tensor>>

/** The queries and keys that take part in causal attention to another rank's keys, and the mask. */
interface View {
  readonly mask: Mask
  readonly queries: 'all' | 'late'
  readonly keys: 'all' | 'early'
}

/**
 * Returns the part of the attention between this rank's queries and the keys of rank `holder`. Each rank has an
 * early and a late section of the sequence. The early section of a lower rank precedes both sections of this
 * rank. Both sections of a higher rank lie between them.
 */
function viewOn(holder: number, rank: number): View {
  if (holder === rank) return { mask: 'causal', queries: 'all', keys: 'all' }
  return holder < rank
    ? { mask: 'full', queries: 'all', keys: 'early' }
    : { mask: 'full', queries: 'late', keys: 'all' }
}

/** Computes attention of the queries to one block of keys. @param kept - the dropout mask */
function attendBlock(q: Tensor, k: Tensor, v: Tensor, view: View, kept?: Tensor): Partial {
  const [queries, keys, values] = [half(q, view.queries), half(k, view.keys), half(v, view.keys)]
  const { probabilities, logSums } = attend(queries, keys, view.mask)
  const output = tf.matMul(times(probabilities, kept), values)
  return {
    output: whole(output, view.queries, 0),
    logSums: whole(logSums(), view.queries, MASKED),
  }
}

/** Merges the attention over two sets of keys. Each output is weighted by its sum of exponentials. */
function merge(a: Partial, b: Partial): Partial {
  const largest = tf.maximum(a.logSums, b.logSums)
  const [fromA, fromB] = [a, b].map(({ logSums }) => tf.exp(tf.sub(logSums, largest)))
  const total = tf.add(fromA!, fromB!)
  const output = tf.add(
    tf.mul(a.output, tf.div(fromA!, total)),
    tf.mul(b.output, tf.div(fromB!, total)),
  )
  return { output, logSums: tf.add(largest, tf.log(total)) }
}

/** The queries of this rank, with the tensors that their backward pass needs. */
interface Queries {
  readonly q: Tensor
  readonly dy: Tensor
  /** The log-sum-exp of each query's scores over all keys. */
  readonly logSums: Tensor
  /** The dot product of each output row and its gradient: [batch, heads, length, 1]. */
  readonly products: Tensor
}

/** Computes the gradients that one block of keys contributes to queries, keys and values. */
function blockGradients(
  { q, dy, logSums, products }: Queries,
  k: Tensor,
  v: Tensor,
  { mask, queries, keys }: View,
  kept?: Tensor,
) {
  const [ownQ, ownDy] = [half(q, queries), half(dy, queries)]
  const [ownK, ownV] = [half(k, keys), half(v, keys)]
  const probabilities = attendAgain(ownQ, ownK, mask, half(logSums, queries))
  const dProbabilities = times(tf.matMul(ownDy, ownV, false, true), kept)
  const dScores = tf.mul(probabilities, tf.sub(dProbabilities, half(products, queries)))
  return {
    dq: whole(tf.matMul(dScores, ownK), queries, 0),
    dk: whole(tf.matMul(dScores, ownQ, true, false), keys, 0),
    dv: whole(tf.matMul(times(probabilities, kept), ownDy, true, false), keys, 0),
  }
}

/** A part of a rank's positions: both sections, or only the early or the late one. */
type Part = 'all' | 'early' | 'late'

function half(x: Tensor, part: Part) {
  if (part === 'all') return x
  const [batch, heads, length, size] = x.shape as [number, number, number, number]
  const begin = part === 'early' ? 0 : length / 2
  return tf.slice(x, [0, 0, begin, 0], [batch, heads, length / 2, size])
}

function whole(x: Tensor, part: Part, filling: number) {
  if (part === 'all') return x
  const rest = tf.fill(x.shape, filling)
  return tf.concat(part === 'early' ? [x, rest] : [rest, x], 2)
}
