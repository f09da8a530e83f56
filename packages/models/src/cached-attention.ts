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
  /** The number of rows allocated for each head. */
  let capacity = 0
  let cachedKeys = new Float32Array(0)
  let cachedValues = new Float32Array(0)

  const reserve = (positions: number, sequences: number, size: number) => {
    const before = capacity
    if (positions <= before) return
    capacity = Math.max(positions, 2 * before, 64)
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
  const attendRow = (
    queries: Float32Array,
    out: Float32Array,
    { at, start, keys, size }: { at: number; start: number; keys: number; size: number },
  ) => {
    const scale = 1 / Math.sqrt(size)
    const scores = new Float64Array(keys)
    let largest = -Infinity
    for (let j = 0; j < keys; j++) {
      const row = (start + j) * size
      let product = 0
      for (let i = 0; i < size; i++) product += queries[at + i]! * cachedKeys[row + i]!
      scores[j] = product * scale
      if (scores[j]! > largest) largest = scores[j]!
    }
    let total = 0
    for (let j = 0; j < keys; j++) total += scores[j] = Math.exp(scores[j]! - largest)
    const sums = new Float64Array(size)
    for (let j = 0; j < keys; j++) {
      const row = (start + j) * size
      const weight = scores[j]! / total
      for (let i = 0; i < size; i++) sums[i]! += weight * cachedValues[row + i]!
    }
    out.set(sums, at)
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
