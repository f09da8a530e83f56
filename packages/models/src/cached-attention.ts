import { argumentError } from '@tsrun/core'
import { type AttentionCore, viewOf } from '@tsrun/training'
import { causalAttention, scopedTensor } from '@tsrun/training/parts'

/** An attention core for generation, which caches the keys and values of earlier calls (a KV cache). */
export interface CachedAttention extends AttentionCore {
  /** Drops all cached positions from index `length` on. */
  truncate(length: number): void
  dispose(): void
}

export function noGradient(): never {
  throw argumentError(
    'a backward pass',
    'one while a text is generated',
    'training before or after generate()',
  )
}

/**
 * Returns a causal attention core with a KV cache: each call attends to the positions of all calls so
 * far. The positions of a call follow those in the cache. Results equal those of `causalAttention` on the
 * whole sequence. There is no backward pass.
 *
 * Keys and values are cached in arrays, and each row is computed in double precision. Calling a
 * TensorFlow.js operation would take longer than computing one position.
 */
export function hostCache(): CachedAttention {
  let length = 0
  /** The number of rows allocated for each head, a multiple of four. */
  let capacity = 0
  let cachedKeys = new Float32Array(0)
  let cachedValues = new Float32Array(0)
  /** The scores of one row. */
  let scores = new Float64Array(0)

  const reserve = (positions: number, sequences: number, size: number) => {
    const before = capacity
    if (positions <= before) return
    capacity = 4 * Math.ceil(Math.max(positions, 2 * before, 64) / 4)
    scores = new Float64Array(capacity)
    const grow = (old: Float32Array) => {
      const grown = new Float32Array(sequences * capacity * size)
      for (let s = 0; s < sequences && before > 0; s++) {
        const rows = old.subarray(s * before * size, (s + 1) * before * size)
        grown.set(rows, s * capacity * size)
      }
      return grown
    }
    cachedKeys = grow(cachedKeys)
    cachedValues = grow(cachedValues)
  }
  /** Takes four keys at a time, so that products and sums of different keys do not wait for each other. */
  const attendRow = (
    queries: Float32Array,
    out: Float32Array,
    { at, start, keys, size }: { at: number; start: number; keys: number; size: number },
  ) => {
    const scale = 1 / Math.sqrt(size)
    let largest = -Infinity
    for (let j = 0; j < keys; j += 4) {
      const first = (start + j) * size
      const [second, third, fourth] = [first + size, first + 2 * size, first + 3 * size]
      let [a, b, c, d] = [0, 0, 0, 0]
      for (let i = 0; i < size; i++) {
        const query = queries[at + i]!
        a += query * cachedKeys[first + i]!
        b += query * cachedKeys[second + i]!
        c += query * cachedKeys[third + i]!
        d += query * cachedKeys[fourth + i]!
      }
      scores[j] = a * scale
      scores[j + 1] = b * scale
      scores[j + 2] = c * scale
      scores[j + 3] = d * scale
    }
    for (let j = 0; j < keys; j++) if (scores[j]! > largest) largest = scores[j]!
    let total = 0
    for (let j = 0; j < keys; j++) total += scores[j] = Math.exp(scores[j]! - largest)
    const sums = new Float64Array(size)
    let j = 0
    for (; j + 4 <= keys; j += 4) {
      const first = (start + j) * size
      const [second, third, fourth] = [first + size, first + 2 * size, first + 3 * size]
      const [a, b, c, d] = [scores[j]!, scores[j + 1]!, scores[j + 2]!, scores[j + 3]!]
      for (let i = 0; i < size; i++) {
        sums[i]! +=
          a * cachedValues[first + i]! +
          b * cachedValues[second + i]! +
          (c * cachedValues[third + i]! + d * cachedValues[fourth + i]!)
      }
    }
    for (; j < keys; j++) {
      const row = (start + j) * size
      for (let i = 0; i < size; i++) sums[i]! += scores[j]! * cachedValues[row + i]!
    }
    for (let i = 0; i < size; i++) out[at + i] = sums[i]! / total
  }

  return {
    forward(q, k, v) {
      const [batch, heads, count, size] = q.shape as [number, number, number, number]
      const before = length
      const sequences = batch * heads
      reserve(before + count, sequences, size)
      for (const [from, to] of [
        [viewOf(k), cachedKeys],
        [viewOf(v), cachedValues],
      ] as const) {
        for (let s = 0; s < sequences; s++) {
          const rows = from.subarray(s * count * size, (s + 1) * count * size)
          to.set(rows, (s * capacity + before) * size)
        }
      }
      length = before + count
      // Compute a prompt with matrix products, which are faster for many positions.
      if (before === 0) return { output: causalAttention.forward(q, k, v).output, saved: [] }
      const output = scopedTensor(q.shape, (out) => {
        const queries = viewOf(q)
        for (let s = 0; s < sequences; s++) {
          for (let i = 0; i < count; i++) {
            const at = (s * count + i) * size
            attendRow(queries, out, { at, start: s * capacity, keys: before + i + 1, size })
          }
        }
      })
      return { output, saved: [] }
    },
    backward: noGradient,
    truncate(to) {
      length = Math.min(length, to)
    },
    dispose() {
      length = 0
    },
  }
}
