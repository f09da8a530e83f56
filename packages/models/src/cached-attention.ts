import { argumentError } from '@tsrun/core'
import { type AttentionCore, type Tensor, tf, viewOf } from '@tsrun/training'
import { attend, causalAttention, isHostAccessible, scopedTensor } from '@tsrun/training/parts'

/** An attention core for generation, which caches the keys and values of earlier calls (a KV cache). */
export interface CachedAttention extends AttentionCore {
  /** The number of cached positions. */
  readonly length: number
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
  return isHostAccessible() ? new HostCache() : new DeviceCache()
}

function noGradient(): never {
  throw argumentError(
    'a backward pass',
    'one while a text is generated',
    'training before or after generate()',
  )
}

class HostCache implements CachedAttention {
  length = 0
  /** The number of rows allocated for each head. */
  #capacity = 0
  #keys: Float32Array = new Float32Array(0)
  #values: Float32Array = new Float32Array(0)

  forward(q: Tensor, k: Tensor, v: Tensor): { output: Tensor; saved: Tensor[] } {
    const [batch, heads, count, size] = q.shape as [number, number, number, number]
    const before = this.length
    const sequences = batch * heads
    this.#reserve(before + count, sequences, size)
    for (const [from, to] of [
      [viewOf(k), this.#keys],
      [viewOf(v), this.#values],
    ] as const) {
      for (let s = 0; s < sequences; s++) {
        const rows = from.subarray(s * count * size, (s + 1) * count * size)
        to.set(rows, (s * this.#capacity + before) * size)
      }
    }
    this.length = before + count
    // Compute a prompt with matrix products, which are faster for many positions.
    if (before === 0) return { output: causalAttention.forward(q, k, v).output, saved: [] }
    const output = scopedTensor(q.shape, (out) => {
      const queries = viewOf(q)
      for (let s = 0; s < sequences; s++) {
        for (let i = 0; i < count; i++) {
          const at = (s * count + i) * size
          this.#attend(queries, out, { at, start: s * this.#capacity, keys: before + i + 1, size })
        }
      }
    })
    return { output, saved: [] }
  }

  backward(): never {
    noGradient()
  }

  truncate(length: number): void {
    this.length = Math.min(this.length, length)
  }

  dispose(): void {
    this.length = 0
  }

  #attend(
    queries: Float32Array,
    out: Float32Array,
    { at, start, keys, size }: { at: number; start: number; keys: number; size: number },
  ): void {
    const scale = 1 / Math.sqrt(size)
    const scores = new Float64Array(keys)
    let largest = -Infinity
    for (let j = 0; j < keys; j++) {
      const row = (start + j) * size
      let product = 0
      for (let i = 0; i < size; i++) product += queries[at + i]! * this.#keys[row + i]!
      scores[j] = product * scale
      if (scores[j]! > largest) largest = scores[j]!
    }
    let total = 0
    for (let j = 0; j < keys; j++) total += scores[j] = Math.exp(scores[j]! - largest)
    const sums = new Float64Array(size)
    for (let j = 0; j < keys; j++) {
      const row = (start + j) * size
      const weight = scores[j]! / total
      for (let i = 0; i < size; i++) sums[i]! += weight * this.#values[row + i]!
    }
    out.set(sums, at)
  }

  #reserve(length: number, sequences: number, size: number): void {
    const before = this.#capacity
    if (length <= before) return
    this.#capacity = Math.max(length, 2 * before, 64)
    const grow = (old: Float32Array): Float32Array => {
      const grown = new Float32Array(sequences * this.#capacity * size)
      for (let s = 0; s < sequences && before > 0; s++) {
        const rows = old.subarray(s * before * size, (s + 1) * before * size)
        grown.set(rows, s * this.#capacity * size)
      }
      return grown
    }
    this.#keys = grow(this.#keys)
    this.#values = grow(this.#values)
  }
}

class DeviceCache implements CachedAttention {
  #keys: Tensor | undefined
  #values: Tensor | undefined

  get length(): number {
    return this.#keys?.shape[2] ?? 0
  }

  forward(q: Tensor, k: Tensor, v: Tensor): { output: Tensor; saved: Tensor[] } {
    const before = this.length
    const keys = this.#keys === undefined ? tf.clone(k) : tf.concat([this.#keys, k], 2)
    const values = this.#values === undefined ? tf.clone(v) : tf.concat([this.#values, v], 2)
    this.dispose()
    this.#keys = tf.keep(keys)
    this.#values = tf.keep(values)
    if (before === 0) return { output: causalAttention.forward(q, k, v).output, saved: [] }
    const rows = Array.from({ length: q.shape[2]! }, (_, i) => {
      const [query, seen] = [rowsOf(q, i, 1), before + i + 1]
      const { probabilities } = attend(query, rowsOf(keys, 0, seen), 'full')
      return tf.matMul(probabilities, rowsOf(values, 0, seen))
    })
    return { output: rows.length === 1 ? rows[0]! : tf.concat(rows, 2), saved: [] }
  }

  backward(): never {
    noGradient()
  }

  truncate(length: number): void {
    if (length >= this.length) return
    const [keys, values] = [this.#keys!, this.#values!]
    this.#keys = length === 0 ? undefined : tf.keep(rowsOf(keys, 0, length))
    this.#values = length === 0 ? undefined : tf.keep(rowsOf(values, 0, length))
    tf.dispose([keys, values])
  }

  dispose(): void {
    this.#keys?.dispose()
    this.#values?.dispose()
    this.#keys = undefined
    this.#values = undefined
  }
}

function rowsOf(x: Tensor, from: number, count: number): Tensor {
  const [batch, heads, length, size] = x.shape as [number, number, number, number]
  if (from === 0 && count === length) return x
  return tf.slice(x, [0, 0, from, 0], [batch, heads, count, size])
}
