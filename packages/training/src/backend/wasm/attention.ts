import type { Tensor } from '@tensorflow/tfjs-core'
import type { Differentiable } from '../../tfjs/backend.ts'
import { currentHeap, type Operand, type WasmHeap } from './heap.ts'
import type { Step } from './step.ts'

/** The number of queries in a block. A block skips the keys after its last query. */
const QUERIES = 64

/** The most bytes of probabilities to keep for the backward pass. Larger ones are recomputed. */
const KEPT = 2 ** 24

/**
 * Causal attention of rows [batch, length, 3 x heads x size] to [batch, length, heads x size], in blocks of
 * queries, so that their scores stay in the CPU cache. Reads the matrices of each head in place.
 */
export function attentionStep(heap: WasmHeap, shape: readonly number[], size: number): Step {
  const [batch, length, channels] = shape as [number, number, number]
  const width = channels / 3
  const count = width / size
  const scale = 1 / Math.sqrt(size)
  const rowBytes = 4 * channels
  /** The largest score and 1 / (sum of the exponentials) of each row of probabilities. */
  const statistics = 2 * batch * count * length
  const probabilities = batch * count * length * length
  const isKept = 4 * probabilities <= KEPT

  /** Calls `visit` for each block of queries, for each head from the last block to the first. */
  const forBlocks = (visit: (block: Block) => void) => {
    for (let head = 0; head < batch * count; head++) {
      const sequence = Math.floor(head / count) * length
      const column = 4 * (head % count) * size
      const start = sequence * rowBytes + column
      for (let step = Math.ceil(length / QUERIES) - 1; step >= 0; step--) {
        const first = QUERIES * step
        const queries = Math.min(QUERIES, length - first)
        visit({
          row: head * length + first,
          first,
          queries,
          keys: first + queries,
          q: start + first * rowBytes,
          k: start + 4 * width,
          v: start + 8 * width,
          out: 4 * (sequence + first) * width + column,
        })
      }
    }
  }
  /**
   * Computes the probabilities [queries, keys] of a block, unless they were kept.
   *
   * @param isKnown - whether `kept` is the result of the forward pass
   */
  const probabilitiesOf = (block: Block, rows: number, kept: number, isKnown: boolean): Matrix => {
    const { row, first, queries, keys, q, k } = block
    const at = isKept
      ? kept + 4 * (statistics + row * length)
      : heap.temporary(8 * QUERIES * length)
    if (!isKnown || !isKept) {
      const keyRows = { at: rows + k, stride: channels, transposed: true }
      const queryRows = { at: rows + q, stride: channels }
      heap.multiply(at, queryRows, keyRows, [queries, keys, size], { stride: length })
      const known = kept + 8 * row
      heap.kernels.softmax_rows(at, queries, keys, 4 * length, first + 1, scale, known, isKnown)
    }
    return { at, stride: length }
  }
  return {
    width,
    kept: statistics + (isKept ? probabilities : 0),

    forward(out, rows, kept) {
      forBlocks((block) => {
        const p = probabilitiesOf(block, rows, kept, false)
        const v = { at: rows + block.v, stride: channels }
        const options = { stride: width }
        heap.multiply(out + block.out, p, v, [block.queries, size, block.keys], options)
      })
    },

    backward(gradient, dy, rows, kept) {
      forBlocks((block) => {
        const { first, queries, keys } = block
        const p = probabilitiesOf(block, rows, kept, true)
        const scores = heap.temporary(8 * QUERIES * length) + 4 * QUERIES * length
        const dOutput = { at: dy + block.out, stride: width }
        const [q, k, v] = [block.q, block.k, block.v].map((at) => ({
          at: rows + at,
          stride: channels,
        })) as [Matrix, Matrix, Matrix]
        const d = { at: scores, stride: keys }
        // The last block covers all keys. It runs first, and the other blocks add to its gradients.
        const options = { stride: channels, accumulates: first + queries < length }
        heap.multiply(gradient + block.v, transpose(p), dOutput, [keys, size, queries], options)
        heap.multiply(scores, dOutput, transpose(v), [queries, keys, size])
        const [dStride, pStride] = [4 * keys, 4 * length]
        heap.kernels.softmax_gradient(scores, p.at, queries, keys, dStride, pStride, scale)
        heap.multiply(gradient + block.q, d, k, [queries, size, keys], { stride: channels })
        heap.multiply(gradient + block.k, transpose(d), q, [keys, size, queries], options)
      })
      return () => undefined
    },
  }
}

/** A block of queries of one head. `q`, `k` and `v` are offsets in bytes in the rows, `out` in the output. */
interface Block {
  /** The index of its first row of probabilities. */
  readonly row: number
  /** The position of its first query. */
  readonly first: number
  readonly queries: number
  readonly keys: number
  readonly q: number
  readonly k: number
  readonly v: number
  readonly out: number
}

/** Causal attention of rows [batch, length, 3 x heads x size]. */
export function attention(rows: Tensor, size: number): Differentiable {
  const heap = currentHeap()!
  const step = attentionStep(heap, rows.shape, size)
  const [batch, length] = rows.shape as [number, number]
  const value = heap.scoped([batch, length, step.width])
  const kept = heap.scoped([step.kept])
  step.forward(heap.addressOf(value), heap.addressOf(rows), heap.addressOf(kept), 0)
  return {
    value,
    saved: [rows, kept],
    gradients(dy, [rows, kept]) {
      const gradient = heap.scoped(rows!.shape)
      const [to, from, input, values] = [gradient, dy, rows!, kept!].map((t) => heap.addressOf(t))
      step.backward(to!, from!, input!, values!, { isNeeded: true, residual: 0, mask: 0 })
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

function transpose({ at, stride }: Matrix): Matrix {
  return { at, stride, transposed: true }
}
