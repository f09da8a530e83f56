import type { Tensor } from '@tensorflow/tfjs-core'
import type { Differentiable } from '../../tfjs/backend.ts'
import { currentHeap, type Operand } from './heap.ts'

/** The number of queries in a block. A block skips the keys after its last query. */
const QUERIES = 64

/** The most bytes of probabilities to keep for the backward pass. Larger ones are recomputed. */
const KEPT = 2 ** 24

/**
 * Computes causal attention in blocks of queries, so that their scores stay in the CPU cache. Reads the
 * matrices of each head in place from `rows` [batch, length, 3 x heads x size].
 */
export function attention(rows: Tensor, size: number): Differentiable {
  const heads = headsOf(rows, size)
  const { heap, batch, count, length, width } = heads
  const value = heap.scoped([batch, length, width])
  const stats = heap.scoped([batch, count, length, 2])
  const isKept = 4 * batch * count * length * length <= KEPT
  const saved = [rows, stats, ...(isKept ? [heap.scoped([batch, count, length, length])] : [])]
  const out = heap.addressOf(value)
  for (const block of heads.blocks()) {
    const p = heads.probabilities(block, saved, false)
    const options = { stride: width }
    heap.multiply(out + block.output, p, block.v, [block.queries, size, block.keys], options)
  }
  return {
    value,
    saved,
    gradients(dy, saved) {
      const rows = saved[0]!
      const heads = headsOf(rows, size)
      const { heap, channels, width, length, scale } = heads
      const gradient = heap.scoped(rows.shape)
      const shift = heap.addressOf(gradient) - heap.addressOf(rows)
      const slopes = heap.addressOf(dy)
      for (const block of heads.blocks()) {
        const { first, queries, keys, q, k, v, output } = block
        const p = heads.probabilities(block, saved, true)
        const dOutput = matrix(slopes + output, width)
        const d = matrix(heads.memory + 4 * QUERIES * length, keys)
        // The last block covers all keys. It runs first, and the other blocks add to its gradients.
        const options = { stride: channels, accumulates: first + queries < length }
        heap.multiply(v.at + shift, transpose(p), dOutput, [keys, size, queries], options)
        heap.multiply(d.at, dOutput, transpose(v), [queries, keys, size])
        const [dStride, pStride] = [4 * keys, 4 * length]
        heap.kernels.softmax_gradient(d.at, p.at, queries, keys, dStride, pStride, scale)
        heap.multiply(q.at + shift, d, k, [queries, size, keys], { stride: channels })
        heap.multiply(k.at + shift, transpose(d), q, [keys, size, queries], options)
      }
      return [gradient]
    },
  }
}

export function cachedAttention(rows: Tensor, size: number, cache: Tensor, before: number): Tensor {
  const [batch, count, channels] = rows.shape as [number, number, number]
  const heap = currentHeap()!
  const [, capacity, entry] = cache.shape as [number, number, number]
  const width = entry / 2
  const isPrompt = before === 0 && count > 1
  const value = isPrompt ? attention(rows, size).value : heap.scoped([batch, count, width])
  const scores = heap.temporary(4 * (before + count) + 8)
  const [out, from, begin] = [value, rows, cache].map((tensor) => heap.addressOf(tensor))
  const { HEAPU8: memory } = heap.backend.wasm
  const scale = 1 / Math.sqrt(size)
  for (let i = 0; i < batch * count; i++) {
    const row = from! + 4 * channels * i
    const position = before + (i % count)
    const sequence = begin! + 4 * entry * capacity * Math.floor(i / count)
    memory.copyWithin(sequence + 4 * entry * position, row + 4 * width, row + 4 * channels)
    if (isPrompt) continue
    const to = out! + 4 * width * i
    heap.kernels.attend_cached(to, row, sequence, scores, position + 1, width, size, scale)
  }
  return value
}

/** A row-major matrix whose rows are `stride` values apart. */
interface Matrix extends Operand {
  readonly stride: number
}

function matrix(at: number, stride: number): Matrix {
  return { at, stride }
}

function transpose({ at, stride }: Matrix): Matrix {
  return { at, stride, transposed: true }
}

/** Locates the heads in rows [batch, length, 3 x count x size]. */
function headsOf(rows: Tensor, size: number) {
  const [batch, length, channels] = rows.shape as [number, number, number]
  const heap = currentHeap()!
  const width = channels / 3
  const count = width / size
  const scale = 1 / Math.sqrt(size)
  /** Scratch memory for two blocks of scores. */
  const memory = heap.temporary(8 * QUERIES * length)
  const begin = heap.addressOf(rows)
  /** Returns the block at the query `first` of a head. Heads are numbered across all sequences. */
  const blockAt = (head: number, first: number) => {
    const sequence = Math.floor(head / count) * length
    const column = (head % count) * size
    const start = begin + 4 * (sequence * channels + column)
    const queries = Math.min(QUERIES, length - first)
    return {
      head,
      first,
      queries,
      keys: first + queries,
      q: matrix(start + 4 * first * channels, channels),
      k: matrix(start + 4 * width, channels),
      v: matrix(start + 8 * width, channels),
      /** The offset of the block in the output, in bytes. */
      output: 4 * ((sequence + first) * width + column),
    }
  }
  return {
    heap,
    batch,
    length,
    channels,
    width,
    count,
    scale,
    memory,

    /** Yields the blocks of each head, from the last to the first. */
    *blocks() {
      for (let head = 0; head < batch * count; head++) {
        for (let step = Math.ceil(length / QUERIES) - 1; step >= 0; step--) {
          yield blockAt(head, QUERIES * step)
        }
      }
    },

    /**
     * Computes the probabilities [queries, keys] of a block, unless they were kept.
     *
     * @param saved - the rows, the largest scores and sums [batch, count, length, 2], and, if they were
     *   kept, the probabilities [batch, count, length, length]
     * @param isKnown - whether `saved` has been computed
     */
    probabilities(
      block: ReturnType<typeof blockAt>,
      [, stats, kept]: readonly Tensor[],
      isKnown: boolean,
    ) {
      const { head, first, queries, keys, q, k } = block
      const row = head * length + first
      const p = kept === undefined ? memory : heap.addressOf(kept) + 4 * row * length
      if (!isKnown || kept === undefined) {
        heap.multiply(p, q, transpose(k), [queries, keys, size], { stride: length })
        const at = heap.addressOf(stats!) + 8 * row
        heap.kernels.softmax_rows(p, queries, keys, 4 * length, first + 1, scale, at, isKnown)
      }
      return matrix(p, length)
    },
  }
}
