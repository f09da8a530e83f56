import { argumentError } from '@tsrun/core'
import { type AttentionCore, type Tensor, tf, viewOf } from '@tsrun/training'
import { attend, causalAttention, isHostAccessible, scopedTensor } from '@tsrun/training/parts'

/** An attention core for generation, which caches the keys and values of earlier calls (a KV cache). */
export interface CachedAttention extends AttentionCore {
  /** Drops all cached positions from index `length` on. */
  truncate(length: number): void
  dispose(): void
}

/**
 * Returns a causal attention core with a KV cache: each call attends to the positions of all calls so
 * far. The positions of a call follow those in the cache. Results equal those of `causalAttention` on the
 * whole sequence. There is no backward pass.
 *
 * If tensors are in host memory, keys and values are cached in arrays, and each row is computed in double
 * precision. Calling a TensorFlow.js operation would take longer than computing one position.
 */
export function cachedAttention(): CachedAttention {
  return isHostAccessible() ? hostCache() : deviceCache()
}

function noGradient(): never {
  throw argumentError(
    'a backward pass',
    'one while a text is generated',
    'training before or after generate()',
  )
}

function hostCache(): CachedAttention {
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

function deviceCache(): CachedAttention {
  let cached: readonly [keys: Tensor, values: Tensor] | undefined

  const lengthOf = () => cached?.[0].shape[2] ?? 0
  const replace = (next: typeof cached) => {
    if (cached !== undefined) tf.dispose([...cached])
    cached = next
  }
  return {
    forward(q, k, v) {
      const before = lengthOf()
      const keys = tf.keep(cached === undefined ? tf.clone(k) : tf.concat([cached[0], k], 2))
      const values = tf.keep(cached === undefined ? tf.clone(v) : tf.concat([cached[1], v], 2))
      replace([keys, values])
      if (before === 0) return { output: causalAttention.forward(q, k, v).output, saved: [] }
      const rows = Array.from({ length: q.shape[2]! }, (_, i) => {
        const [query, seen] = [rowsOf(q, i, 1), before + i + 1]
        const { probabilities } = attend(query, rowsOf(keys, 0, seen), 'full')
        return tf.matMul(probabilities, rowsOf(values, 0, seen))
      })
      return { output: rows.length === 1 ? rows[0]! : tf.concat(rows, 2), saved: [] }
    },
    backward: noGradient,
    truncate(length) {
      if (cached === undefined || length >= lengthOf()) return
      const [keys, values] = cached
      const first = (x: Tensor) => tf.keep(rowsOf(x, 0, length))
      replace(length === 0 ? undefined : [first(keys), first(values)])
    },
    dispose() {
      replace(undefined)
    },
  }
}

function rowsOf(x: Tensor, from: number, count: number): Tensor {
  const [batch, heads, length, size] = x.shape as [number, number, number, number]
  if (from === 0 && count === length) return x
  return tf.slice(x, [0, 0, from, 0], [batch, heads, count, size])
}
