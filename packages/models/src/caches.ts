import { argumentError } from '@tsrun/core'
import {
  type AttentionCore,
  Block,
  CausalSelfAttention,
  Dropout,
  Embedding,
  FeedForward,
  type Module,
  type PositionEmbedding,
  type Tensor,
  currentPass,
  tf,
  viewOf,
} from '@tsrun/training'
import {
  causalAttention,
  hasPositions,
  isAttention,
  isRepeatable,
  modulesOf,
  repeated,
  scopedTensor,
} from '@tsrun/training/parts'
import { GPT } from './gpt.ts'

/** An attention core for generation, which caches the keys and values of earlier calls (a KV cache). */
interface CachedAttention extends AttentionCore {
  /** Drops all cached positions from index `length` on. */
  truncate(length: number): void
  dispose(): void
}

function noGradient(): never {
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

/** The smallest number of positions for which caches have room. */
const SMALLEST = 64
/** The score of a position that a query does not attend to; see `causalAttention`. */
const MASKED = -1e30

/** Modules that run the same operations for each token outside of training. */
const PLAIN: readonly unknown[] = [GPT, Block, CausalSelfAttention, FeedForward, Embedding, Dropout]

const numbers = new WeakMap<Module, number>()
let numbered = 0

function numberOf(module: Module): number {
  const number = numbers.get(module) ?? numbered++
  numbers.set(module, number)
  return number
}

/**
 * The KV caches of attention layers whose tensors are on a device. They have room for a fixed number of
 * positions, which doubles when they are full. A pass of one token then has the same shapes for many
 * tokens, so that the backend can repeat it with few calls; see `TensorBackend.repeat`.
 *
 * @param block - the largest number of positions
 */
export function deviceCaches(block: number) {
  /** The keys of layer i at 2 i and its values at 2 i + 1, each [batch * heads, capacity, size]. */
  const caches = new Map<number, Tensor>()
  /** Tensors that depend only on the positions of the current tokens. */
  const places = new Map<string, Tensor>()
  let layers = 0
  let length = 0
  let capacity = 0

  const clear = (tensors: Map<unknown, Tensor>) => {
    tf.dispose([...tensors.values()])
    tensors.clear()
  }
  const truncate = (to: number) => {
    length = to
    clear(places)
    // The mask does not hide rows that are not finite, so an empty cache must not keep old rows.
    if (to === 0) clear(caches)
  }
  const replace = (index: number, next: Tensor) => {
    const before = caches.get(index)
    if (before !== next) before?.dispose()
    caches.set(index, next)
  }
  const reserve = (positions: number) => {
    if (positions <= capacity) return
    const doubled = SMALLEST * 2 ** Math.max(0, Math.ceil(Math.log2(positions / SMALLEST)))
    const added = Math.max(positions, Math.min(doubled, block)) - capacity
    capacity += added
    for (const [index, cache] of caches) {
      const grown = tf.pad(cache, [
        [0, 0],
        [0, added],
        [0, 0],
      ])
      replace(index, tf.keep(grown))
    }
  }

  const place = (key: string, make: () => Tensor) => {
    const tensor = places.get(key) ?? tf.keep(make())
    places.set(key, tensor)
    return tensor
  }
  /** Positions beyond the table have its last row. */
  const positionsOf = ({ weight }: PositionEmbedding, count: number) => {
    const last = weight.shape[0]! - 1
    return place(`positions ${last} ${count}`, () =>
      tf.tensor1d(
        Int32Array.from({ length: count }, (_, i) => Math.min(length + i, last)),
        'int32',
      ),
    )
  }
  /** Returns the place [sequence and head, position] of each new key in a cache. */
  const rowsOf = (sequences: number, count: number) =>
    place(`rows ${sequences} ${count}`, () => {
      const rows = Array.from({ length: sequences * count }, (_, i) => [
        Math.floor(i / count),
        length + (i % count),
      ])
      return tf.tensor2d(rows, undefined, 'int32')
    })
  const maskOf = (count: number) =>
    place(`mask ${count}`, () => {
      const mask = new Float32Array(count * capacity)
      for (let i = 0; i < count; i++) {
        mask.fill(MASKED, i * capacity + length + i + 1, (i + 1) * capacity)
      }
      return tf.tensor2d(mask, [count, capacity])
    })

  return {
    truncate,

    /** Returns the attention core of the next layer. */
    core(): AttentionCore {
      const layer = layers++
      return {
        forward(q, k, v) {
          const [batch, heads, count, size] = q.shape as [number, number, number, number]
          const sequences = batch * heads
          reserve(length + count)
          const [keys, values] = [k, v].map((rows, i) => {
            const index = 2 * layer + i
            const before = caches.get(index) ?? tf.zeros([sequences, capacity, size])
            const updates = tf.reshape(rows, [sequences * count, size])
            const next = tf.tensorScatterUpdate(before, rowsOf(sequences, count), updates)
            replace(index, tf.keep(next))
            return next
          }) as [Tensor, Tensor]
          const queries = tf.reshape(q, [sequences, count, size])
          const scores = tf.mul(tf.matMul(queries, keys, false, true), 1 / Math.sqrt(size))
          const probabilities = tf.softmax(tf.add(scores, maskOf(count)))
          return { output: tf.reshape(tf.matMul(probabilities, values), q.shape), saved: [] }
        },
        backward: noGradient,
      }
    },

    /**
     * Lets the backend repeat the passes of single tokens, if all modules inside `module` are plain.
     *
     * @returns a function that restores the module
     */
    repeat(module: GPT): () => void {
      const parts = [module, ...Array.from(modulesOf(module), (each) => each.module)]
      if (!parts.every(isPlain)) return () => undefined
      const name = `generate ${parts.map(numberOf).join()}`
      const forward = module.forward.bind(module)
      const [first] = module.layers
      const { parameters } = module
      const positions = parts.filter(hasPositions)
      for (const part of positions) {
        part.forward = (x) =>
          tf.add(x, tf.gather(part.weight.value, positionsOf(part, x.shape[1]!)))
      }
      module.forward = (x) => {
        const isFirst = caches.size < 2 * layers
        if (x.shape[1] !== 1 || isFirst || currentPass()?.training === true) return forward(x)
        // A repeated pass does not check the tokens.
        first!.isRepeatable?.(x)
        reserve(length + 1)
        for (const cache of caches.values()) rowsOf(cache.shape[0], 1)
        for (const part of positions) positionsOf(part, 1)
        maskOf(1)
        const inputs = [
          x,
          ...places.values(),
          ...caches.values(),
          ...parameters.map(({ value }) => value),
        ]
        // Unlike a repeated pass, `forward` replaces the caches itself, and disposes those in `inputs`.
        const [output, ...next] = repeated(name, inputs, () => [forward(x), ...caches.values()])
        for (const [i, index] of [...caches.keys()].entries()) replace(index, next[i]!)
        const scoped = tf.clone(output!)
        output!.dispose()
        return scoped
      }
      return () => {
        for (const part of [module, ...positions]) delete (part as Partial<Module>).forward
      }
    },

    dispose() {
      truncate(0)
    },
  }
}

function isPlain(module: Module): boolean {
  if (Object.hasOwn(module, 'forward')) return false
  if (isAttention(module) && module.core !== causalAttention) return false
  return PLAIN.includes(module.constructor) || isRepeatable(module)
}
